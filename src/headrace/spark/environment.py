"""Check that Spark's Python workers find the packages of the program that uses the session.

Spark starts its workers as `python3` from the PATH unless it is configured otherwise. A program that is run
by the path of its interpreter, in an environment that is not activated, gets workers without its packages.
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

    Other sessions (a cluster, Spark Connect) are not checked: their workers run on other machines.

    Raises:
        HeadraceError: DEPENDENCY, with the variable to set.
    """
    if "connect" in type(spark).__module__ or not str(spark.conf.get("spark.master", "")).startswith("local"):
        return
    name = spark.sparkContext.pythonExec  # PYSPARK_PYTHON when the session was created, else python3
    python = shutil.which(name)
    if python is not None and (_is_ours(python) or _imports_headrace(python)):
        return
    raise HeadraceError(
        Kind.DEPENDENCY,
        f"Spark starts its Python workers as {python or name}, which does not import headrace; this program "
        f"runs with {sys.executable}",
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made (os.environ in the program, or the "
        "shell), or activate the environment.",
    )


def _is_ours(python: str) -> bool:
    """Tell whether a program lies in the folder of this interpreter, so that it has the same packages."""
    return Path(python).parent.absolute() == Path(sys.executable).parent.absolute()


def _imports_headrace(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - what Spark itself starts for each task
            [python, "-c", "import headrace, pyarrow"], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
