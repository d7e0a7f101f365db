"""Create and stop Headrace's own Spark sessions.

Only these sessions are tuned; a user's own session is not changed (decision 0051).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headrace.config.java import spark_java_home
from headrace.errors import HeadraceError, Kind
from headrace.logs import LogFormat, WorkerLogs
from headrace.spark.class_archive import spark_class_archive
from headrace.spark.environment import check_spark_home, check_workers
from headrace.spark.interpreter import choose_python
from headrace.spark.output import json_lines
from headrace.spark.settings import is_local, is_relative, settings, with_absolute_files

_LOG = logging.getLogger(__name__)
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
_LOCAL = re.compile(r"local\[(\*|[1-9][0-9]*)\]")
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of our own is created in it
_MEMORY_NEEDED = 64 << 20
_PREFIX = "headrace-spark-"
_LOCK = "lock"
_HEAP = "1g"  # `--conf spark.driver.memory` overrides it
_STANDALONE = "spark://"
_MASTER_SECONDS = 5.0
_REASON = re.compile(r"\S+(?:Exception|Error)\b")
_END_SECONDS = 20.0
_NOTICE_SECONDS = 2.0
_EXITS = {
    # of -XX:+ExitOnOutOfMemoryError
    3: ("had no memory left and has ended", "Start again with more: --conf spark.driver.memory=2g."),
    # Spark's own
    56: ("has ended: its driver did not hear of the executor (the machine slept?)", "Start again."),
}
"""By exit code what has happened to the JVM, and the remedy."""

POOL, BESIDE, STREAM = "spark.scheduler.pool", "beside", "stream"
"""The property that names a job's pool, and the pools: the stream's jobs must not wait for a backfill's."""

_IDLE_WORKERS = "spark.python.factory.idleWorkerMaxPoolSize"
_SMALL_MEMORY = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""What lets Spark's processes give memory back: by default each thread, and PyArrow, keeps some."""

_MAX_LOG, _LOG_SECONDS = 64 << 20, 60.0
_LOG4J_FILE = "log4j2.properties"
_LOG4J = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = {pattern}
"""
_TEXT = "%d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex"
_JSON = (
    '{{"time": "%d{{yyyy-MM-dd\'T\'HH:mm:ss.SSS}}{{UTC}}Z", "level": "%p{{WARN=WARNING}}", '
    '"component": "spark.%c{{1}}", "message": "%enc{{%m}}{{JSON}}", "exc_info": "%enc{{%ex}}{{JSON}}", '
    '"slot": "{slot}"}}%n'
)
"""The fields of `headrace.logs`."""


__all__ = ["SparkSession"]  # for rooms that do not import PySpark; the rest is this module's own


@dataclass(frozen=True, slots=True)
class LocalSpark:
    """A running session and its temporary files.

    Attributes:
        session: Spark's.
        scratch: a folder for checkpoints, in memory where the machine offers that; removed at the end.
        log: what the JVM and the Python workers print.
    """

    session: SparkSession
    scratch: Path
    log: Path


@contextlib.contextmanager
def local_spark(
    *,
    master: str = "local[*]",
    log_level: str = "warn",
    terminal: bool = False,
    given: Mapping[str, str] | None = None,
    logs: WorkerLogs | None = None,
    preloaded: str = "",
    java_options: str | None = None,
    end_within: float = _END_SECONDS,
) -> Iterator[LocalSpark]:
    """Start a session of Headrace's own; stop it at the end.

    Args:
        master: Spark's master URL.
        log_level: of Spark's own log.
        terminal: let Spark's log go to the terminal instead of a file.
        given: settings of the user, which override the defaults.
        logs: how the Python processes log, and whether Spark's own log is JSON too.
        preloaded: a module that the Python processes of a local session import before they are forked.
        java_options: further options of the JVM; None: the one that uses the archive of Spark's classes.
        end_within: seconds until a JVM that does not end by itself is killed.

    Raises:
        HeadraceError: DEPENDENCY without a fitting Java, SPARK where the session does not start, USAGE for an
            invalid master, CONFIG where this machine lacks the Python that is to run.
    """
    _remove_stale_folders()
    _check_master(master)
    # In this order: the JVM must have ended before its folders are removed.
    with contextlib.ExitStack() as stack, _own_folder(None) as folder, _scratch(folder) as scratch:
        log = folder / "spark.log"
        python = choose_python(master, folder, given or {}, os.environ, preloaded=preloaded)
        variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **_own_address(master)}
        variables["JAVA_HOME"] = str(spark_java_home())
        if logs is not None:
            variables[WorkerLogs.VARIABLE] = logs.to_text()
        variables |= {name: value for name, value in _SMALL_MEMORY.items() if name not in os.environ}
        stack.enter_context(_environment(variables))
        if java_options is None:
            archive = spark_class_archive(os.environ)
            java_options = "" if archive is None else archive.options()
        (folder / _LOG4J_FILE).write_text(_LOG4J.format(level=log_level, pattern=_pattern(logs)))
        user_settings = with_absolute_files(given or {}, Path.cwd())
        conf = _settings(master, folder, user_settings, java_options=java_options)
        if logs is not None:
            conf.set(f"spark.executorEnv.{WorkerLogs.VARIABLE}", logs.to_text())
        runs_in = folder if is_relative(python) else None
        output = stack.enter_context(_output(log, terminal=terminal, logs=logs))
        with _java(conf, output, runs_in, end_within):
            session = _start(conf)
            try:
                yield LocalSpark(session, scratch, log)
            finally:
                _stop(session)


@contextlib.contextmanager
def given_spark(session: SparkSession) -> Iterator[LocalSpark]:
    """Use a session that another program created, tuned, and will stop.

    Raises:
        HeadraceError: DEPENDENCY, where its workers do not import Headrace, or where it is a client of Spark
            Connect: a run has to query the scheduler. SPARK, where it ends while it is used.
    """
    if not isinstance(session, SparkSession):
        raise HeadraceError(
            Kind.DEPENDENCY,
            "a pipeline does not run in a session of Spark Connect",
            "Give it a classic session, or none: it makes its own.",
        )
    check_workers(session)
    with _own_folder(None) as folder, _scratch(folder) as scratch:
        try:
            yield LocalSpark(session, scratch, folder / "spark.log")
        except (Py4JError, PySparkException, OSError, AttributeError) as error:  # PySpark's own, once stopped
            if not _is_stopped(session.sparkContext):
                raise
            raise HeadraceError(
                Kind.SPARK,
                "the Spark session that the pipeline was given has ended",
                "Start the pipeline again, in a session that outlives it.",
            ) from error


def _is_stopped(context: SparkContext) -> bool:
    """Return whether a context was stopped, or its JVM has ended."""
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001 - it has no public name
    except (Py4JError, OSError, AttributeError):  # a stopped context has no `_jsc`
        return True


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process; restore them, and those that PySpark sets meanwhile, at the end."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        ours = [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_")) or name in variables]
        for name in ours:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@contextlib.contextmanager
def bound_log(log: Path, most: int = _MAX_LOG, seconds: float = _LOG_SECONDS) -> Iterator[None]:
    """Truncate a file that is appended to, whenever it holds more than `most` bytes.

    It is read only after a failure, and an outage of weeks would fill it with repeated traces.
    """
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(seconds):
            with contextlib.suppress(OSError):
                if log.stat().st_size > most:
                    # The JVM appends, so that its next line begins at the new end.
                    os.truncate(log, 0)

    thread = threading.Thread(target=look, name="headrace log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@contextlib.contextmanager
def _own_folder(parent: Path | None) -> Iterator[Path]:
    """Create a folder in `parent` (None: the system's) until the end; locked while this process lives."""
    folder = _new_folder(parent)
    with (folder / f"{_LOCK}.new").open("xb") as lock:
        # The kernel releases it when the process dies, however that happens.
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only now: another start removes a folder whose lock is free.
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _new_folder(parent: Path | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:  # also where the system's folder for them takes no file
        cause = f"no folder for temporary files can be made: {error}"
        raise HeadraceError(Kind.DISK, cause, "Free some space, or set TMPDIR.") from error


def _remove_stale_folders() -> None:
    """Remove the folders of runs that were killed; their locks are free."""
    parents = [_MEMORY_FOLDER]
    with contextlib.suppress(OSError):
        parents.append(Path(tempfile.gettempdir()))
    for parent in parents:
        for stale in parent.glob(f"{_PREFIX}*"):
            try:
                with (stale / _LOCK).open("r+b") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(stale, ignore_errors=True)
            except OSError:
                continue  # the run lives, or belongs to another user


@contextlib.contextmanager
def _output(log: Path, *, terminal: bool, logs: WorkerLogs | None) -> Iterator[BinaryIO | None]:
    """Yield the file that the JVM prints to; None: the terminal."""
    if not terminal:
        with log.open("ab") as output, bound_log(log):
            yield output
    elif logs is not None and logs.form is LogFormat.JSON:
        with json_lines() as output:
            yield output
    else:
        yield None


def _pattern(logs: WorkerLogs | None) -> str:
    """Return the pattern of a line of Spark's log."""
    return _TEXT if logs is None or logs.form is LogFormat.TEXT else _JSON.format(slot=logs.slot)


def _settings(master: str, folder: Path, user_settings: Mapping[str, str], *, java_options: str) -> SparkConf:
    all_ = settings(master, _HEAP, folder, folder / _LOG4J_FILE, user_settings, java_options=java_options)
    threads = _threads(master)
    if threads is not None:
        # One task slot more, which jobs beside the stream leave free: Spark does not preempt tasks. A worker
        # holds 48 MB; the second one that a large batch takes is made by a fork.
        own = {"spark.default.parallelism": str(threads), _IDLE_WORKERS: "1"}
        all_ = own | all_
        # By default a local master gives up at a task's first failure.
        master = f"local[{threads + 1},3]"
    return SparkConf().setAll(list(all_.items())).setMaster(master)


def master_of(session: SparkSession) -> str:
    """Return the master of a session."""
    return str(session.sparkContext.master)


def task_slots(session: SparkSession) -> int:
    """Return how many tasks run at once on the executors that there are now."""
    context = session.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark tells only spark.default.parallelism
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def places_beside(session: SparkSession) -> int:
    """Return how many tasks may run beside the stream, so that one task slot is left for its own."""
    return max(1, task_slots(session) - 1)


def _threads(master: str) -> int | None:
    """Return how many tasks a local master may run at once; None for any other master."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    return _processors() if found[1] == "*" else int(found[1])


def _processors() -> int:
    """Count the processors of this process, within a container's limit, as the JVM does."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CPU_LIMIT.read_text().split()
        return known if quota == "max" else max(1, min(known, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        return known


@contextlib.contextmanager
def _java(
    settings: SparkConf, output: BinaryIO | None, folder: Path | None, end_within: float
) -> Iterator[None]:
    """Start the JVM and stop it at the end; it prints to `output`, and so do its workers.

    Args:
        settings: Spark's.
        output: None: the terminal.
        folder: where it runs; None: the current folder.
        end_within: seconds until it is killed where it does not end.
    """
    starting: dict[str, Any] = {} if output is None else {"stdout": output, "stderr": output}
    check_spark_home(os.environ)
    with _spark_errors():
        gateway = launch_gateway(settings, popen_kwargs=starting | {"cwd": folder})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - no other way in
    try:
        yield
    except (Py4JError, PySparkException, OSError) as error:
        if (ended := _exit_error(gateway.proc)) is None:
            raise
        raise ended from error
    finally:
        gateway.shutdown()
        # The JVM watches its standard input, and ends when that does.
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(end_within)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        # PySpark keeps them in its class: the next session would talk to the JVM that has ended.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def _exit_error(java: subprocess.Popen[bytes]) -> HeadraceError | None:
    """Return the error for a JVM that has exited; None while it runs."""
    try:
        # The socket to the JVM breaks some moments before its process has an exit code.
        code = java.wait(_NOTICE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    remedy = "Start again; if the system kills it for want of memory, its log says so."
    how, remedy = _EXITS.get(code, (how, remedy))
    return HeadraceError(Kind.SPARK, f"Spark's Java process {how}", remedy)


def _start(settings: SparkConf) -> SparkSession:
    handler = signal.getsignal(signal.SIGINT)
    with _spark_errors():
        context = SparkContext.getOrCreate(settings)
        silence(context)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)  # the context has set its own handler
        return SparkSession.builder.config(conf=settings).getOrCreate()


def silence(context: SparkContext) -> None:
    """Keep PySpark's accumulator server from printing a trace if the JVM ends first."""
    server = getattr(context, "_accumulatorServer", None)
    if isinstance(server, socketserver.BaseServer):
        server.handle_error = _note_end  # type: ignore[method-assign]


def _note_end(request: object, client_address: object) -> None:  # noqa: ARG001 - socketserver's signature
    _LOG.debug("the connection for accumulators ended", exc_info=True)


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's errors at its start into Headrace's, and hide its warnings on Python packages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (PySparkException, Py4JError, OSError) as error:
        raise HeadraceError(
            Kind.SPARK, f"Spark does not start: {_reason(str(error))}", "Run again with --log-level debug."
        ) from error


def _reason(text: str) -> str:
    """Return the most informative line of a trace."""
    lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _REASON.match(line)), lines[0] if lines else "no reason given")


def _own_address(master: str) -> dict[str, str]:
    """Return the variable that names this machine's address to Spark, whose own host name may have none.

    Spark does not start without. Executors elsewhere need the real address, so a cluster gets no variable.
    """
    return {} if not is_local(master) or "SPARK_LOCAL_IP" in os.environ else {"SPARK_LOCAL_IP": "127.0.0.1"}


def _check_master(master: str) -> None:
    """Check that one of a standalone cluster's masters answers: Spark would try for minutes.

    Raises:
        HeadraceError: SPARK.
    """
    if not master.startswith(_STANDALONE):
        return
    failure: OSError | None = None
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS):
                return
        except ValueError as error:
            raise HeadraceError(
                Kind.USAGE,
                f"{master} is not the URL of a Spark master",
                "Write spark://HOST:PORT, as the master's page shows it.",
            ) from error
        except OSError as error:
            failure = error
    raise HeadraceError(
        Kind.SPARK, f"there is no Spark master at {master}: {failure}", "Start it, or correct --master."
    )


def _stop(session: SparkSession) -> None:
    """Stop the session, even if its JVM was killed."""
    with contextlib.suppress(Py4JError, PySparkException, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


@contextlib.contextmanager
def _scratch(fallback: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        try:
            has_room = shutil.disk_usage(_MEMORY_FOLDER).free >= _MEMORY_NEEDED
            scratch = stack.enter_context(_own_folder(_MEMORY_FOLDER)) if has_room else fallback
        except (OSError, HeadraceError):
            scratch = fallback  # no such folder, or not accessible: use the disk
        yield scratch
