"""Record the classes that a run loads: `python -m headrace.pipeline.stream.record_classes`.

It starts a session, runs a query of the same shape as a run's, and ends. That takes half a minute, once for
each Java and PySpark; every later start of Spark takes half of the time (decision 0095).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.pipeline.stream.documents_source import READER
from headrace.pipeline.stream.warm_up import warmed_up
from headrace.spark.class_archive import spark_class_archive
from headrace.spark.session import local_spark

_WRITTEN_WITHIN = 300.0
_LOWEST_PRIORITY = 19
_MEMORY_NEEDED = 2 << 30
_MEMORY = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def record_classes() -> None:
    """Record the archive of Spark's classes; nothing where there is one, or where there can be none.

    Raises:
        HeadraceError: as `local_spark`.
        OSError: the cache folder cannot be written to.
    """
    archive = spark_class_archive(os.environ)
    if archive is None or archive.exists:
        return
    with archive.recording() as option:
        if option is not None:
            spark = local_spark(preloaded=READER, java_options=option, end_within=_WRITTEN_WITHIN)
            with spark as session, warmed_up(session):
                pass


@contextlib.contextmanager
def recorded_beside() -> Iterator[None]:
    """Record them in a process of the lowest priority; it ends with the context at the latest.

    Nothing happens where they are recorded, or where little memory is left.
    """
    archive = spark_class_archive(os.environ)
    if archive is None or archive.exists or _free_memory() < _MEMORY_NEEDED:
        yield
        return
    process = subprocess.Popen(  # noqa: S603 - this module
        [sys.executable, "-m", __spec__.name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_memory() -> int:
    """Return how many bytes this machine, or this container, has left; 0 where that is not known."""
    try:
        [line] = (line for line in _MEMORY.read_text().splitlines() if line.startswith("MemAvailable:"))
        free = int(line.split()[1]) << 10
    except (OSError, ValueError):
        return 0
    try:
        return min(free, int(_LIMIT.read_text()) - int(_USED.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return free


if __name__ == "__main__":
    os.nice(_LOWEST_PRIORITY)
    try:
        record_classes()
    except (HeadraceError, OSError) as error:
        sys.exit(f"headrace: Spark's classes are not recorded: {error}")
