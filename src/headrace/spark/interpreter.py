"""Choose the Python interpreter for the workers of Headrace's own sessions.

Spark puts three archives before everything else that a worker imports from: pyspark.zip, py4j's and Spark's
own core jar. Modules in them are compiled again in each process, and every call lists the archives again.
Headrace's session runs where PySpark is installed as a package, so its workers need none of that.

Effect, in processor seconds (runs with and without it in turn, on two cores that others used too): the
imports of one worker 0.36 instead of 1.31 (median of 3); the worker processes of a `headrace run`, about 15,
until it is live 9.5 instead of 19.1 (median of 4; 8.9 to 10.9 instead of 17.8 to 21.8); 60 updates then 13.3
instead of 16.7.
"""

from __future__ import annotations

import os
import shlex
import shutil
import site
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from headrace.errors import HeadraceError, Kind
from headrace.spark.settings import PYTHON, is_local, is_relative


def choose_python(
    master: str,
    folder: Path,
    user_settings: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    preloaded: str = "",
) -> str:
    """Return the interpreter for PYSPARK_PYTHON: the user's, or else this one.

    Spark starts it on executors and on this machine, where it plans. A relative path lies in what executors
    have unpacked; a script of the same name in `folder`, where the JVM runs then, leads to this interpreter.
    `preloaded` is a module that this interpreter imports before its processes are forked.

    Raises:
        HeadraceError: CONFIG, where this machine has no such program.
    """
    local = is_local(master)
    python = user_settings.get(PYTHON) or (None if local else environ.get("PYSPARK_PYTHON"))
    if not python:
        return worker_python(folder, environ, preloaded) if local else sys.executable
    if is_relative(python):
        script = folder / python
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(worker_python(folder, environ, preloaded))} "$@"\n')
        script.chmod(0o755)
    elif shutil.which(python) is None:
        raise HeadraceError(
            Kind.CONFIG,
            f"there is no {python} on this machine, where {PYTHON} (or PYSPARK_PYTHON) is started too",
            "Name a Python that has the same path here and on the executors, or one in spark.archives.",
        )
    return python


def worker_python(folder: Path, environ: Mapping[str, str], preloaded: str = "") -> str:
    """Return this interpreter, behind a script in `folder` that removes the archives from its path.

    Without the script where the interpreter does not find PySpark by itself, or where `folder` forbids
    programs.
    """
    search_path = environ.get("PYTHONPATH", "")
    known = {*site.getsitepackages(), site.getusersitepackages(), *search_path.split(os.pathsep)}
    if str(Path(pyspark.__file__).parents[1]) not in known:
        return sys.executable
    script = folder / "python"
    script.write_text(wrapper_script(sys.executable, search_path, preloaded))
    script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def wrapper_script(python: str, search_path: str, preloaded: str = "") -> str:
    """Return a shell script that runs `python` with this process's PYTHONPATH instead of Spark's.

    Modules that Spark runs are run by `headrace.spark.process`.
    """
    return f"""#!/bin/sh
export PYTHONPATH={shlex.quote(search_path)}
[ "$1" != -m ] || set -- -m headrace.spark.process {shlex.quote(preloaded)} "$@"
exec {shlex.quote(python)} "$@"
"""
