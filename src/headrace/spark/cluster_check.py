"""Can the executors of a cluster do our work? Asked before anything is made on any server.

A job asks every executor for its Python, its packages, and whether database and sink answer there, and
compares that with this machine. What is wrong is one error, which says how it is put right.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

FIX = (
    "Send the executors this Python: pack it (venv-pack -o environment.tar.gz, or conda pack) and add "
    "--conf spark.archives=environment.tar.gz#environment "
    "--conf spark.pyspark.python=./environment/bin/python"
)
"""What helps wherever an executor lacks something."""

_REACH = "Check it from that machine: an address such as 127.0.0.1 means the executor's own."
_SAME = PACKAGES[:2]
_NONE: Mapping[str, Any] = MappingProxyType({})
_GROUP = "headrace-preflight"
_FIRST_WITHIN, _NEXT_WITHIN = 300.0, 2.0
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
"""Its kind, and where it is: the options of one that is no cluster."""

Report = Mapping[str, Any]
"""What `probe` found in one place."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the cluster gives: executors, and tasks at once.

    Attributes:
        away: what executors do not reach and nothing waits for; for people.
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
    patience: float = _FIRST_WITHIN,
) -> Grant:
    """Ask all executors that the cluster gives, and make sure that they can do what this machine can.

    Args:
        database: its URL.
        modules: that must be importable besides ours.
        further: sinks that hold up nobody, by name.
        patience: how long the first executor may take to come (s).

    Raises:
        HeadraceError: DEPENDENCY, where an executor differs; what keeps it from a server; SPARK, where
            none comes.
    """
    context, needed = spark.sparkContext, tuple(modules)
    kinds = tuple(sorted({kind for kind, place in secondary.values() if not isinstance(place, Endpoint)}))
    connections = pickle.dumps((database, tuple(sinks), dict(secondary)))

    def look() -> Report:
        return probe(needed, connections, kinds)

    def ask(ending: Event) -> Grant:
        executors = _await_executors(context, patience, ending)
        reports: dict[tuple[str, int], Report] = {}
        tasks = executors  # Spark gives each executor one before any gets a second
        for _ in range(_ROUNDS):
            found = _asked(context, tasks, look)
            reports |= {(one["host"], one["process"]): one for one in found}
            if len(reports) >= executors:
                break
            tasks = 2 * max(executors, _places(context))
        compare(probe(needed), list(reports.values()))
        return Grant(executors, _places(context), tuple(_away(reports.values())))

    return interruptibly(context, _GROUP, ask)


def compare(driver: Report, executors: Sequence[Report]) -> None:
    """Make sure that what executors report is what the driver has.

    Raises:
        HeadraceError: DEPENDENCY, or the kind of what an executor cannot reach; for the first that differs.
    """
    for one in executors:
        if differences := differing(driver, one):
            raise HeadraceError(
                Kind.DEPENDENCY,
                f"the executor on {one['host']} ({one['executable']}) is not like this machine: "
                + "; ".join(differences),
                FIX,
            )
    for one in executors:
        for kind, cause in one["unreachable"]:
            raise HeadraceError(Kind(kind), f"on the executor's machine {one['host']}: {cause}", _REACH)


def _away(reports: Iterable[Report]) -> list[str]:
    """Which secondary sinks do not answer where, each machine once."""
    return sorted(
        {
            f"the sink {name!r} is not reached from the executor's machine {one['host']}: {cause}"
            for one in reports
            for name, cause in one["away"].items()
        }
    )


def differing(driver: Report, executor: Report) -> list[str]:
    """What an executor has otherwise, or lacks."""
    found = []
    if executor["python"] != driver["python"]:
        found.append(f"Python {executor['python']} for {driver['python']}")
    for name, here in driver["versions"].items():
        there = executor["versions"][name]
        if there is None and here is not None:
            found.append(f"no {name}")
        elif there != here and (name in _SAME or _major(there) != _major(here)):
            found.append(f"{name} {there} for {here}")
    if not any(one.startswith("no ") for one in found):
        found += [f"{name} cannot be imported ({why})" for name, why in executor["missing"].items()]
        found += executor["kindless"].values()
    return found


def _major(version: str | None) -> str:
    return (version or "").partition(".")[0]


def failed_to_start(text: str) -> HeadraceError:
    """The error for a job whose Python did not even begin, from what Spark says of it."""
    reasons = (match for pattern in _REASONS if (match := pattern.search(text)))
    first = next(reasons, None)
    host = _HOST.search(text)
    place = f"the executor on {host['host']}" if host else "an executor"
    if first is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return HeadraceError(
            Kind.SPARK, f"{place} cannot run Python: {lines[0][:300] if lines else 'no reason given'}", FIX
        )
    return HeadraceError(Kind.DEPENDENCY, f"{place} cannot run our Python: {first['why'].strip(' .')}", FIX)


def _asked(context: SparkContext, tasks: int, look: Callable[[], Report]) -> list[Report]:
    """The answers of one job."""
    with _by_value():
        try:
            context.setJobGroup(_GROUP, "preflight", interruptOnCancel=True)
            numbers = context.parallelize(range(tasks), tasks)
            return list(numbers.map(lambda _: look()).collect())
        except (Py4JError, PySparkException) as error:
            raise failed_to_start(str(error)) from error


@contextmanager
def _by_value() -> Iterator[None]:
    """The probe goes with its task: the executors may not have it."""
    cloudpickle.register_pickle_by_value(probing)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(probing)  # type: ignore[no-untyped-call]


def _await_executors(context: SparkContext, patience: float, ending: Event) -> int:
    """How many there are, once no more come.

    Raises:
        HeadraceError: SPARK, where none comes.
    """
    known, deadline = 0, time.monotonic() + patience
    while time.monotonic() < deadline and not ending.is_set():
        count = _executors(context)
        if count > known:
            known, deadline = count, time.monotonic() + _NEXT_WITHIN
        ending.wait(_POLL_SECONDS)
    if not known:
        raise HeadraceError(
            Kind.SPARK,
            f"the cluster has given no executor within {patience:.0f} s",
            "Look at its own page: are spark.executor.memory and spark.executor.cores free on a worker?",
        )
    return known


def _executors(context: SparkContext) -> int:
    """How many have registered; the driver counts itself among them."""
    with _living():
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001


def _places(context: SparkContext) -> int:
    """How many tasks run at once."""
    with _living():
        return int(context.defaultParallelism)


@contextmanager
def _living() -> Iterator[None]:
    try:
        yield
    except Py4JError as error:
        raise HeadraceError(
            Kind.SPARK,
            "the cluster has ended our application: its executors do not start",
            "Look at the logs of its workers.",
        ) from error
