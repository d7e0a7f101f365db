"""Do Spark's Python workers find what the program of a session has installed?

Spark starts its workers as `python3` from the PATH unless it is told otherwise: a program that is run by the
path of its interpreter, in an environment that is not activated, gets workers without its packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 30.0


def check_workers(spark: SparkSession) -> None:
    """Refuse a local session whose workers cannot import Headrace.

    A session elsewhere (a cluster, Spark Connect) is not looked at: its workers run on other machines.

    Raises:
        HeadraceError: DEPENDENCY, with the variable that is to be set.
    """
    if "connect" in type(spark).__module__ or not str(spark.conf.get("spark.master", "")).startswith("local"):
        return
    named = spark.sparkContext.pythonExec  # as PYSPARK_PYTHON said when the session was made, else python3
    python = shutil.which(named)
    if python is not None and (_is_ours(python) or _imports_headrace(python)):
        return
    raise HeadraceError(
        Kind.DEPENDENCY,
        f"Spark starts its Python workers as {python or named}, which does not import headrace; this program "
        f"runs with {sys.executable}",
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made (os.environ in the program, or the "
        "shell), or activate the environment.",
    )


def _is_ours(python: str) -> bool:
    """Whether a program lies in the folder of our own interpreter, so that it has the same packages."""
    return Path(python).parent.absolute() == Path(sys.executable).parent.absolute()


def _imports_headrace(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - what Spark itself starts for each task
            [python, "-c", "import headrace, pyarrow"], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
