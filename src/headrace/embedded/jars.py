"""Download jars, as those of the embedded OpenSearch, into the user's cache, and verify them.

Every jar is pinned by its checksum in a list beside this file. Ivy, whose jar comes with PySpark, downloads
them from its default public Maven repository, or from HEADRACE_MAVEN_REPOSITORY.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headrace.config.cache import cache_folder
from headrace.errors import HeadraceError, Kind

Progress = Callable[[int, int], None]
"""Called with the number of downloaded jars and the number of all jars."""

DOWNLOAD_MB = 86


@dataclass(frozen=True, slots=True)
class Release:
    """A server that runs from jars.

    Attributes:
        name: the name of its folder in the cache, and of its list of jars.
        main: the class that starts it.
        settings: the name of its settings file.
        lists: the folder with its list of jars.
    """

    name: str
    main: str
    settings: str
    lists: Path = Path(__file__).parent


OPENSEARCH_3 = Release(
    "opensearch-3.8.0.0", "org.codelibs.opensearch.runner.OpenSearchRunner", "opensearch.yml"
)

_ATTEMPTS = 3
_NEW = ".download"
_LEFT_SECONDS = 86_400
_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
_FETCHED = re.compile(r"\[SUCCESSFUL \]")
_FAILED = re.compile(r"Server access error|SERVER ERROR|\[FAILED|UNRESOLVED|Exception")


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar in the Maven repository; `classifier` may be empty."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name in the cache."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def pinned_jars(release: Release = OPENSEARCH_3) -> list[Jar]:
    """Read the release's list of jars."""
    text = (release.lists / f"{release.name}.txt").read_text()
    return [parse_line(line) for line in text.splitlines() if line and not line.startswith("#")]


def parse_line(line: str) -> Jar:
    """Parse a line of the list: `SHA-256 group:artifact:version[:classifier]`."""
    sha256, name = line.split()
    group, artifact, version, classifier = [*name.split(":"), ""][:4]
    return Jar(group, artifact, version, classifier, sha256)


def opensearch_present(environ: Mapping[str, str]) -> bool:
    """Return whether all jars are in the cache already."""
    folder = cache_folder(environ) / OPENSEARCH_3.name
    return all((folder / jar.file).is_file() for jar in pinned_jars())


def opensearch_jars(
    java: Path, environ: Mapping[str, str], progress: Progress | None = None, release: Release = OPENSEARCH_3
) -> Path:
    """Return the folder with all jars; download them (86 MB) if they are not in the cache.

    Raises:
        HeadraceError: DEPENDENCY, DISK or DOWNLOAD.
    """
    return cached_jars(release.name, pinned_jars(release), java, environ, progress)


def cached_jars(
    name: str, jars: Sequence[Jar], java: Path, environ: Mapping[str, str], progress: Progress | None = None
) -> Path:
    """Return the cache's folder `name` with all `jars`; download them if they are not there.

    Raises:
        HeadraceError: DEPENDENCY, DISK or DOWNLOAD.
    """
    folder = cache_folder(environ) / name
    # The folder appears by one rename: a file in it is complete.
    if all((folder / jar.file).is_file() for jar in jars):
        return folder
    new = _make_room(folder)
    shutil.rmtree(folder, ignore_errors=True)  # not after the download: another process may use it by then
    try:
        fetch_into(new, jars, java, environ, progress)
        (new / "lib").rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # otherwise another process was faster
            raise _disk_error(folder, str(error)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def fetch_into(
    folder: Path,
    jars: Sequence[Jar],
    java: Path,
    environ: Mapping[str, str],
    progress: Progress | None = None,
) -> None:
    """Download `jars` into `folder`/lib, and compare them with their checksums.

    Raises:
        HeadraceError: DEPENDENCY, DISK or DOWNLOAD.
    """
    report = progress or (lambda _done, _all: None)
    report(0, len(jars))
    command, lib = _ivy_command(java, _ivy_jar(), folder, jars, environ), folder / "lib"
    done, failure = 0, ""
    # An attempt does not repeat what the one before downloaded.
    for _ in range(_ATTEMPTS):
        failure = ""
        for line in _run(command):
            if _FETCHED.search(line):
                done += 1
                report(min(done, len(jars)), len(jars))
            elif _FAILED.search(line):
                failure = line.strip()
                break
        # Ivy's exit code is 0 also where it has found nothing.
        if not failure and len(list(lib.glob("*.jar"))) == len(jars):
            verify(lib, jars)
            return
    if "No space left" in failure:
        raise _disk_error(lib, "no space is left on the device")
    raise download_error(failure)


def verify(folder: Path, jars: Sequence[Jar]) -> None:
    """Compare each file with its checksum.

    Raises:
        HeadraceError: DOWNLOAD for the first that is missing or different.
    """
    for jar in jars:
        path = folder / jar.file
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
            raise HeadraceError(
                Kind.DOWNLOAD,
                f"{jar.file} has a wrong checksum",
                "A proxy may answer in place of the Maven repository: try another network.",
            )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else Path("/nowhere")
    ivy = next(iter(sorted(folder.glob("ivy-*.jar"))), None)
    if ivy is None:
        raise HeadraceError(
            Kind.DEPENDENCY,
            "PySpark, whose Ivy fetches the embedded OpenSearch, is not installed",
            "Run: pip install 'headrace[embedded]'",
        )
    return ivy


def _make_room(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(f"*{_NEW}"):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)  # of a download that was killed
        return Path(tempfile.mkdtemp(_NEW, f"{folder.name}.", folder.parent))
    except OSError as error:
        raise _disk_error(folder, str(error)) from error


def _disk_error(folder: Path, cause: str) -> HeadraceError:
    return HeadraceError(
        Kind.DISK,
        f"jars cannot be kept in {folder}: {cause}",
        "Free some space, or set XDG_CACHE_HOME to another disk.",
    )


def _ivy_command(
    java: Path, ivy: Path, new: Path, jars: Sequence[Jar], environ: Mapping[str, str]
) -> list[str]:
    (new / "settings.xml").write_text(settings_xml(environ.get("HEADRACE_MAVEN_REPOSITORY", "")))
    (new / "ivy.xml").write_text(ivy_xml(jars))
    return [
        *(str(java), *java_options(environ), "-jar", str(ivy)),
        *("-settings", str(new / "settings.xml"), "-ivy", str(new / "ivy.xml"), "-cache", str(new / "cache")),
        *("-types", "jar", "-retrieve", f"{new}/lib/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _run(command: Sequence[str]) -> Iterator[str]:
    """Yield the lines that a command prints; kill it when the caller stops reading."""
    with subprocess.Popen(  # noqa: S603 (Java and Ivy)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield from process.stdout
        finally:
            process.kill()


def download_error(failure: str) -> HeadraceError:
    """Return the user's error for a failure that Ivy reported."""
    if "PKIX" in failure or "SSLHandshake" in failure or "certificat" in failure:
        remedy = "Set JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE to a store that knows your network."
    else:
        remedy = (
            "Check the network; HTTPS_PROXY and HEADRACE_MAVEN_REPOSITORY (a mirror) are respected, the "
            "password of a proxy is not."
        )
    reason = re.sub(r"https?://\S+", "the repository", failure)[:300] or "Ivy ended early"
    return HeadraceError(Kind.DOWNLOAD, f"jars cannot be fetched: {reason}", remedy)


def java_options(environ: Mapping[str, str]) -> list[str]:
    """Return Java's options for the network: the system's certificates and the usual proxy variables."""
    options = ["-Djava.net.useSystemProxies=true"]
    if _TRUST_STORE.is_file() and "trustStore" not in environ.get("JAVA_TOOL_OPTIONS", ""):
        options.append(f"-Djavax.net.ssl.trustStore={_TRUST_STORE}")
    for scheme in ("http", "https"):
        if address := environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY"):
            options += _proxy_options(scheme, address)
    if direct := environ.get("no_proxy") or environ.get("NO_PROXY"):
        hosts = (f"*{host}" if host.startswith(".") else host for host in direct.replace(" ", "").split(","))
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(filter(None, hosts))}")
    return options


def _proxy_options(scheme: str, address: str) -> list[str]:
    proxy = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = proxy.port or 80
    except ValueError as error:
        cause = f"{scheme.upper()}_PROXY has no port that is a number"
        raise HeadraceError(Kind.CONFIG, cause, "Write http://HOST:PORT.") from error
    return (
        [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={port}"] if proxy.hostname else []
    )


def settings_xml(root: str) -> str:
    """Return Ivy's settings: one Maven repository, no metadata; `root` empty: Ivy's default repository."""
    where = f" root={quoteattr(root)}" if root else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/><resolvers><ibiblio name="maven" m2compatible="true"'
        f' usepoms="false" useMavenMetadata="false" checksums=""{where}/></resolvers></ivysettings>\n'
    )


def ivy_xml(jars: Sequence[Jar]) -> str:
    """Return Ivy's module file with each jar as a non-transitive dependency, as the list is complete."""
    modules: dict[tuple[str, str, str], list[str]] = {}
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(
            f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"{classifier}/>'
        )
    dependencies = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
        f' transitive="false" conf="default->default">{"".join(artifacts)}</dependency>'
        for (group, name, version), artifacts in modules.items()
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="headrace" module="opensearch"/>\n'
        f'<configurations><conf name="default"/></configurations>\n<dependencies>\n{dependencies}\n'
        "</dependencies></ivy-module>\n"
    )
