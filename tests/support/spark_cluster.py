"""Run a real Spark cluster without installing one.

A standalone master and its workers from PySpark's own jars, all on the loopback interface. Executors are
started by the workers, in folders of their own: what runs where can be read off the workers' folders.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import headrace
from headrace.config.java import spark_java_home
from headrace.embedded.processes import GuardedProcess, descendants, last_line, tail, until
from headrace.embedded.server import READY_WITHIN
from headrace.errors import HeadraceError, Kind

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LOOPBACK = "127.0.0.1"
_HEAP = "-Xmx256m"
_STARTED = re.compile(r"Starting Spark master at (?P<url>spark://\S+)")
_REGISTERED = "Successfully registered with master"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass
class SparkWorker:
    """One worker, which starts executors in `folder`."""

    folder: Path
    log: Path
    process: GuardedProcess

    def executors(self, application: str) -> set[str]:
        """The ids of the executors that it has started for an application, living or not."""
        return {one.name for one in self.folder.glob(f"{application}/*") if one.is_dir()}

    def executor_processes(self) -> list[int]:
        """The process ids of its living executors."""
        return [pid for pid in descendants(self.process.pid) if _EXECUTOR in _command_of(pid)]

    def last_output(self) -> str:
        """What its executors wrote, for messages."""
        return "\n".join(tail(one) for one in sorted(self.folder.glob("app-*/*/stderr")))

    def kill(self) -> None:
        """Kill -9 it with its executors, as the crash of its machine would."""
        self.process.kill()


@dataclass
class SparkCluster:
    """A standalone cluster; a context manager that leaves no process behind.

    Args:
        workers: how many.
        cores: of each; more than the machine has is fine.
        environment: more variables of the workers; their executors inherit them.

    Attributes:
        url: the master's, as `--master` takes it.

    Raises:
        HeadraceError: DEPENDENCY, from entering the context.
    """

    workers: int = 2
    cores: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    members: list[SparkWorker] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-cluster-")).resolve()
        self._master: GuardedProcess | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def arguments(self, conf: Mapping[str, str] | None = None) -> list[str]:
        """The words of a command that runs there, with more settings of Spark's."""
        settings = {**self.conf, **(conf or {})}
        return [
            *("--master", self.url),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        ]

    @property
    def conf(self) -> dict[str, str]:
        """What an application on the same machine says: its executors are on the loopback interface too."""
        return {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}

    def processes(self) -> list[int]:
        """The process ids of all that lives: master, workers, executors, and what these have started."""
        known = [*(one.process for one in self.members), *([self._master] if self._master else [])]
        return [pid for one in known if one.running for pid in (one.pid, *descendants(one.pid))]

    def workers_of(self, application: str, executors: Iterable[str]) -> set[int]:
        """The numbers of the workers that started these executors of an application."""
        wanted = set(executors)
        return {number for number, one in enumerate(self.members) if one.executors(application) & wanted}

    def add_worker(self) -> SparkWorker:
        """Start one more; it has registered with the master when this returns."""
        number = len(self.members)
        folder, log = self._folder / f"work{number}", self._folder / f"worker{number}.log"
        words = ("--cores", str(self.cores), "--memory", "1g", "--work-dir", str(folder), self.url)
        one = SparkWorker(folder, log, self._process(_WORKER, log, *words))
        self.members.append(one)
        self._await(one.process, log, lambda: _REGISTERED in _text(log))
        return one

    def close(self) -> None:
        """End every process and remove the folder; idempotent."""
        for one in self.members:
            one.process.kill()
        if self._master is not None:
            self._master.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        (self._folder / "log4j2.properties").write_text(_LOG4J)
        log = self._folder / "master.log"
        self._master = self._process(_MASTER, log)
        self._await(self._master, log, lambda: _STARTED.search(_text(log)) is not None)
        found = _STARTED.search(_text(log))
        assert found is not None
        self.url = found["url"]
        for _ in range(self.workers):
            self.add_worker()

    def _process(self, main: str, log: Path, *words: str) -> GuardedProcess:
        home = _spark_home()
        java = spark_java_home()
        source = str(Path(headrace.__file__).parents[1])
        command = [
            *(str(java / "bin" / "java"), _HEAP, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-XX:-UsePerfData", f"-Dlog4j2.configurationFile=file:{self._folder / 'log4j2.properties'}"),
            *("-cp", f"{home / 'jars'}/*", main),
            *("--host", _LOOPBACK, "--port", "0", "--webui-port", "0", *words),
        ]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",  # what spark-env.sh would find out
            "JAVA_HOME": str(java),
            "PYTHONPATH": source,
            **self.environment,
        }
        return GuardedProcess(command, log=log, environment=environment, folder=self._folder)

    def _await(self, process: GuardedProcess, log: Path, ready: Callable[[], bool]) -> None:
        until(lambda: not process.running or ready(), READY_WITHIN)
        if not process.running or not ready():
            raise HeadraceError(Kind.DEPENDENCY, f"the Spark cluster did not start: {last_line(log)}")


def _spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise HeadraceError(Kind.DEPENDENCY, "PySpark is not installed", "Run: pip install 'headrace[spark]'")
    return Path(found.origin).parent


def _text(log: Path) -> str:
    return log.read_text(errors="replace")


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
