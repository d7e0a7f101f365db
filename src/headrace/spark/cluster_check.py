"""Check the executors of a cluster before anything is created on any server.

A job probes every executor: its Python, its packages, and whether database and sink answer there. The reports
are compared with this machine. Differences become one error, which says how to correct them.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Endpoint
from headrace.spark import executor_probe as probing
from headrace.spark.executor_probe import PACKAGES, probe
from headrace.spark.jobs import interruptibly
from headrace.spark.session import task_slots

FIX = (
    "Send the executors this Python: pack it (venv-pack -o environment.tar.gz, or conda pack) and add "
    "--conf spark.archives=environment.tar.gz#environment "
    "--conf spark.pyspark.python=./environment/bin/python"
)
"""The remedy where an executor lacks something."""

_REACH = "Check it from that machine: an address such as 127.0.0.1 means the executor's own."
_SAME = PACKAGES[:2]
_NONE: Mapping[str, Any] = MappingProxyType({})
_GROUP = "headrace-preflight"
_FIRST_EXECUTOR_SECONDS, _NEXT_EXECUTOR_SECONDS = 300.0, 2.0
_POLL_SECONDS = 0.1
_ROUNDS = 3
_HOST = re.compile(r"\(TID \d+\) \((?P<host>\S+) executor \S+\)")
_REASONS = (
    re.compile(r"PYTHON_VERSION_MISMATCH\] (?P<why>[^\n]+)"),
    re.compile(r"(?P<why>Cannot run program [^\n]+)"),
    re.compile(r"(?P<why>(?:ModuleNotFound|Import)Error: [^\n)]+)"),
    re.compile(r"(?P<why>No module named [^\n]+)"),
)

ProbedSink = tuple[str, Endpoint | Mapping[str, Any]]
"""A sink's kind, and its endpoint, or its options where it is no OpenSearch cluster."""

Report = Mapping[str, Any]
"""The result of `probe` on one machine."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the cluster provides.

    Attributes:
        executors: their number.
        places: tasks that run at once.
        away: messages about secondary sinks that executors do not reach; nothing waits for them.
    """

    executors: int
    places: int
    away: tuple[str, ...] = ()


def check_executors(
    spark: SparkSession,
    database: str,
    sinks: Sequence[Endpoint],
    modules: Sequence[str] = (),
    *,
    secondary: Mapping[str, ProbedSink] = _NONE,
) -> Grant:
    """Probe all executors that the cluster provides, and check that they can do what this machine can.

    Args:
        spark: the session.
        database: its URL.
        sinks: that every executor must reach.
        modules: further ones that must be importable.
        secondary: secondary sinks by name, which nothing waits for.

    Raises:
        HeadraceError: DEPENDENCY, where an executor differs; the kind of the error with which a server is not
            reached; SPARK, where no executor registers.
    """
    context, needed = spark.sparkContext, tuple(modules)
    kinds = tuple(sorted({kind for kind, place in secondary.values() if not isinstance(place, Endpoint)}))
    connections = pickle.dumps((database, tuple(sinks), dict(secondary)))
    look = partial(probe, needed, connections, kinds)

    def places() -> int:
        with _application_errors():
            return task_slots(spark)

    def ask(ending: Event) -> Grant:
        executors = _await_executors(context, ending)
        reports: dict[tuple[str, int], Report] = {}
        tasks = executors  # Spark gives every executor one task before any gets a second
        for _ in range(_ROUNDS):
            answers = _run_probes(context, tasks, look)
            reports |= {(report["host"], report["process"]): report for report in answers}
            if len(reports) >= executors:
                break
            # An executor that got no task, since others were done sooner, gets one of more.
            tasks = 2 * max(executors, places())
        compare(probe(needed), list(reports.values()))
        return Grant(executors, places(), tuple(_unreachable_sinks(reports.values())))

    return interruptibly(context, _GROUP, ask)


def compare(driver: Report, executors: Sequence[Report]) -> None:
    """Check that the executors' reports are like the driver's.

    Raises:
        HeadraceError: DEPENDENCY, or the kind of the error with which a server is not reached; for the first
            difference.
    """
    for report in executors:
        if differences := list_differences(driver, report):
            raise HeadraceError(
                Kind.DEPENDENCY,
                f"the executor on {report['host']} ({report['executable']}) is not like this machine: "
                + "; ".join(differences),
                FIX,
            )
    for report in executors:
        for kind, cause in report["unreachable"]:
            raise HeadraceError(Kind(kind), f"on the executor's machine {report['host']}: {cause}", _REACH)


def _unreachable_sinks(reports: Iterable[Report]) -> list[str]:
    """List which secondary sinks are not reached from which machine, each machine once."""
    return sorted(
        {
            f"the sink {name!r} is not reached from the executor's machine {report['host']}: {cause}"
            for report in reports
            for name, cause in report["away"].items()
        }
    )


def list_differences(driver: Report, executor: Report) -> list[str]:
    """List what an executor has in another version, or lacks."""
    differences = []
    if executor["python"] != driver["python"]:
        differences.append(f"Python {executor['python']} for {driver['python']}")
    for name, wanted in driver["versions"].items():
        actual = executor["versions"][name]
        if actual is None and wanted is not None:
            differences.append(f"no {name}")
        elif actual != wanted and (name in _SAME or _major(actual) != _major(wanted)):
            differences.append(f"{name} {actual} for {wanted}")
    # What a missing package keeps from being imported would only say the same again.
    if not any(difference.startswith("no ") for difference in differences):
        differences += executor["lacks"]
    return differences


def _major(version: str | None) -> str:
    return (version or "").partition(".")[0]


def start_error(text: str) -> HeadraceError:
    """Return the error for a job whose Python did not start, from Spark's text."""
    first = next((match for pattern in _REASONS if (match := pattern.search(text))), None)
    host = _HOST.search(text)
    place = f"the executor on {host['host']}" if host else "an executor"
    if first is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return HeadraceError(
            Kind.SPARK, f"{place} cannot run Python: {lines[0][:300] if lines else 'no reason given'}", FIX
        )
    return HeadraceError(Kind.DEPENDENCY, f"{place} cannot run our Python: {first['why'].strip(' .')}", FIX)


def _run_probes(context: SparkContext, tasks: int, look: Callable[[], Report]) -> list[Report]:
    """Run one job of probes and return their reports."""
    with _probe_by_value():
        try:
            context.setJobGroup(_GROUP, "preflight", interruptOnCancel=True)
            numbers = context.parallelize(range(tasks), tasks)
            return list(numbers.map(lambda _: look()).collect())
        except (Py4JError, PySparkException) as error:
            raise start_error(str(error)) from error


@contextmanager
def _probe_by_value() -> Iterator[None]:
    """Pickle the probe with its task: the executors may not have its module."""
    cloudpickle.register_pickle_by_value(probing)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(probing)  # type: ignore[no-untyped-call]


def _await_executors(context: SparkContext, ending: Event) -> int:
    """Wait until no more executors register, and return their number.

    Raises:
        HeadraceError: SPARK, where none registers.
    """
    known, deadline = 0, time.monotonic() + _FIRST_EXECUTOR_SECONDS
    while time.monotonic() < deadline and not ending.is_set():
        with _application_errors():  # Spark's own count includes the driver
            count = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001
        if count > known:
            known, deadline = count, time.monotonic() + _NEXT_EXECUTOR_SECONDS
        ending.wait(_POLL_SECONDS)
    if not known:
        raise HeadraceError(
            Kind.SPARK,
            f"the cluster has given no executor within {_FIRST_EXECUTOR_SECONDS:.0f} s",
            "Look at its own page: are spark.executor.memory and spark.executor.cores free on a worker?",
        )
    return known


@contextmanager
def _application_errors() -> Iterator[None]:
    try:
        yield
    except Py4JError as error:
        raise HeadraceError(
            Kind.SPARK,
            "the cluster has ended our application: its executors do not start",
            "Look at the logs of its workers.",
        ) from error
