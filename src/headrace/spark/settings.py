"""Spark settings of Headrace's own sessions, local or on a cluster: its defaults, and the user's over them.

The defaults are measured: a small batch takes 83 ms instead of 252 ms with them. The user's settings come
from the command line and `spark-defaults.conf`, by Spark's own rules: the command line wins over the
file. The file lies in SPARK_CONF_DIR, or in the folder `conf` of SPARK_HOME.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import HeadraceError, Kind
from headrace.spark.environment import find_checkpoint_class

PYTHON, ARCHIVES = "spark.pyspark.python", "spark.archives"

_EXIT = "-XX:+ExitOnOutOfMemoryError"
"""Otherwise a JVM continues without the thread that ran out of memory: the query would hang."""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:InitialHeapSize=96m"
"""The JVMs plan many small batches and move few bytes: the second compiler costs more than it gains."""


_EVERYWHERE: Mapping[str, str] = {
    "spark.app.name": "headrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.session.timeZone": "UTC",
    # By default a job of the stream would wait for a backfill's that came before.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.stopTimeout": "5s",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Saves about 37 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # SQL sets it for its own Python processes; RDDs share them only where all variables are the same.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}

_LOCAL: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The only executor is the driver itself. After two minutes without its heartbeat (a machine that slept)
    # Spark would give it up for good, and end ten minutes later (milliseconds: a year).
    "spark.storage.blockManagerHeartbeatTimeoutMs": "31536000000",
}

_CLUSTER: Mapping[str, str] = {
    # A task is sent with its changes, and one row may have a gigabyte (MiB; Spark's maximum).
    "spark.rpc.message.maxSize": "2047",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}

_SOCKET_NAME, _LONGEST_SOCKET = len("/.00000000-0000-0000-0000-000000000000.sock"), 103
_DEFAULT_JAVA, _EXTRA_JAVA = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
_FILES = (ARCHIVES, "spark.files", "spark.jars", "spark.submit.pyFiles")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MASTER, _PREFIX = "spark.master", "spark."
_LINE = re.compile(r"(?P<key>[^\s=:]+)(?:\s*[=:]\s*|\s+)(?P<value>.*)")


def is_local(master: str) -> bool:
    """Tell whether everything runs on this machine, in one JVM."""
    return master == "local" or master.startswith("local[")


def settings(
    master: str,
    memory: str,
    folder: Path,
    log_properties: Path,
    user_settings: Mapping[str, str],
    *,
    java_options: str = "",
) -> dict[str, str]:
    """Return all settings but the master.

    Args:
        master: Spark's master URL.
        memory: the JVM's heap.
        folder: for temporary files.
        log_properties: of the driver's log.
        user_settings: override the others.
        java_options: of the driver's JVM, beside Headrace's own.
    """
    # As a URI it has no blank, at which Spark's launcher splits the options.
    always = f"-Dlog4j2.configurationFile={log_properties.as_uri()} {_EXIT} {java_options}".rstrip()
    own = {
        **_EVERYWHERE,
        **(_LOCAL if is_local(master) else _CLUSTER),
        "spark.driver.memory": memory,
        _EXTRA_JAVA: JAVA_OPTIONS,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Each file operation of the default checkpoint forks a process.
        "spark.sql.streaming.checkpointFileManagerClass": find_checkpoint_class(),
        **_sockets(master, folder),
    }
    return (
        own
        | dict(user_settings)
        # Ours first: of two values for one option Java takes the last.
        | {_DEFAULT_JAVA: f"{always} {user_settings.get(_DEFAULT_JAVA, '')}".rstrip()}
    )


def _sockets(master: str, folder: Path) -> dict[str, str]:
    """Return the folder for the sockets of Python processes: Spark leaves one socket behind for each query.

    Executors on other machines do not have the folder; a socket's name may have at most 103 bytes.
    """
    if not is_local(master) or len(str(folder).encode()) + _SOCKET_NAME > _LONGEST_SOCKET:
        return {}
    return {"spark.python.unix.domain.socket.dir": str(folder)}


def is_relative(python: str) -> bool:
    """Tell whether an interpreter's path is relative, as in an archive that executors unpack."""
    return "/" in python and not python.startswith("/")


def with_absolute_files(user_settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Make file names absolute, relative to `folder`, for a JVM that runs elsewhere."""
    found = dict(user_settings)
    for name in _FILES:
        if name in found:
            found[name] = ",".join(_absolute(file.strip(), folder) for file in found[name].split(","))
    return found


def _absolute(file: str, folder: Path) -> str:
    return file if not file or _SCHEME.match(file) or file.startswith("/") else str(folder / file)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` texts; of several with the same key, the last one wins.

    Raises:
        HeadraceError: USAGE.
    """
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith(_PREFIX) or key == _PREFIX:
            raise HeadraceError(
                Kind.USAGE,
                f"--conf {key} is not a setting of Spark",
                "Write --conf KEY=VALUE, where KEY begins with spark.",
            )
        settings[key] = value
    return settings


def given_settings(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings, of the command line and of the file.

    Args:
        texts: the settings of the command line.
        environ: the environment, which says where the file is.

    Raises:
        HeadraceError: USAGE; CONFIG, where the file cannot be read.
    """
    return {**_read_defaults(environ), **parse_settings(texts)}


def parse_defaults(text: str) -> dict[str, str]:
    """Parse the settings of a `spark-defaults.conf`."""
    lines = (line.strip() for line in text.splitlines())
    matches = (_LINE.fullmatch(line) for line in lines if not line.startswith(("#", "!")))
    return {match["key"]: match["value"] for match in matches if match and match["key"].startswith(_PREFIX)}


def chosen_master(option: str | None, texts: Iterable[str], given: Mapping[str, str]) -> str:
    """Return Spark's master: the option's, else the setting's, else all cores of this machine.

    Raises:
        HeadraceError: USAGE, where the command line names two.
    """
    named = parse_settings(texts).get(_MASTER)
    if option is not None and named is not None and option != named:
        raise HeadraceError(
            Kind.USAGE, f"--master {option} and --conf {_MASTER}={named} name two masters", "Name one."
        )
    return option or given.get(_MASTER) or "local[*]"


def _read_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else "")
    if not folder:
        return {}
    file = Path(folder) / "spark-defaults.conf"
    try:
        return parse_defaults(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise HeadraceError(
            Kind.CONFIG, f"{file} cannot be read: {error}", "Correct it, or set SPARK_CONF_DIR."
        ) from error
