"""Check that a user's PySpark is new enough, and that its Python workers find the program's packages.

Spark starts its workers as `python3` from the PATH unless it is configured otherwise. A program that is run
by the path of its interpreter, in an environment that is not activated, gets workers without its packages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_OF_SOURCES = (4, 0)
"""The first version whose sources can be written in Python."""
FIRST_OF_DOCUMENTS = (4, 2)
"""The first version that passes the query's position to its sources, and limits their batches."""


def passes_position(version: str) -> bool:
    """Tell whether a PySpark of this version, like `4.4.0.dev1`, passes the position to sources."""
    return _number(version) >= FIRST_OF_DOCUMENTS


def check_version(name: str, first: tuple[int, int] = FIRST_OF_SOURCES) -> None:
    """Refuse the installed PySpark where it is too old for what is named.

    Raises:
        HeadraceError: DEPENDENCY.
    """
    import pyspark  # noqa: PLC0415 - who only asks for the workers need not load it

    version = pyspark.__version__
    if _number(version) < first:
        needed = ".".join(map(str, first))
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"{name} needs PySpark {needed} or newer, and this is PySpark {version}",
            f"Run the program with PySpark {needed} or newer, for example: pip install 'pyspark>={needed}'.",
        )


def check_spark_home(environ: Mapping[str, str]) -> None:
    """Refuse a SPARK_HOME whose Java part is of another version than the installed PySpark.

    Raises:
        HeadraceError: DEPENDENCY.
    """
    import pyspark  # noqa: PLC0415 - as above

    if not (home := environ.get("SPARK_HOME")):
        return
    jars = [jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")]
    if jars and pyspark.__version__ not in jars:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"SPARK_HOME leads to Spark {jars[0]} in {home}, and PySpark is {pyspark.__version__}",
            "Unset SPARK_HOME, or install the PySpark of that version.",
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def find_checkpoint_class() -> str:
    """Return the class of the installed Spark that writes checkpoints by the file system's own operations."""
    import pyspark  # noqa: PLC0415 - as above

    package = "checkpointing." if _number(pyspark.__version__) >= (4, 1) else ""
    return f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"


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
