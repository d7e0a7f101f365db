"""Run one case on a database of its own, and compare its documents."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from headrace.capture.buffer import Limit
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.testing.memory_sink import MemorySink
from support.oracle import naive_documents
from support.shop_oracle import differences
from support.soak.cases import Case
from support.soak.column_types import NEEDED
from support.soak.follower import Follower
from support.soak.preparation import Prepared, look_at_catalog, prepare
from support.soak.random_schemas import text_of
from support.soak.scripts import (
    Apply,
    Checkpoint,
    Compare,
    Control,
    Refuse,
    Restart,
    Statement,
    Step,
    WorkOff,
)
from support.soak.sessions import Writers

SETTINGS = {
    "logical_decoding_work_mem": "64kB",
    "wal_sender_timeout": "4s",
    "autovacuum": "off",
    "max_wal_size": "2GB",
}
"""Of a server for cases: large transactions are sent while they run, an idle server speaks often."""

_ALTERED = frozenset({Kind.SCHEMA_CHANGED, Kind.REPLICA_IDENTITY})
_TEMPLATE = "soak_template"
_LONGEST_SECONDS = 120.0
"""Of a case: in a few a deep tree of joins multiplies, and the oracle reads a row again for each parent."""


@dataclass
class Outcome:
    """What was seen.

    Attributes:
        wrong: the first differences, empty where everything was right.
        compared: how many documents were compared.
        cut_off: whether it took too long, and was not followed to its end.
    """

    wrong: list[str] = field(default_factory=list)
    compared: int = 0
    cut_off: bool = False
    statements: int = 0
    refused: int = 0
    batches: int = 0
    restarts: int = 0
    deferred: int = 0
    rejected: int = 0
    rebuilt: int = 0


def make_template(server: EmbeddedPostgres) -> None:
    """Once for each server: what the databases of all cases have."""
    url = server.create_database(_TEMPLATE)
    with connect(url) as connection:
        for sql in NEEDED:
            execute(connection, sql)


@contextlib.contextmanager
def database_of(server: EmbeddedPostgres, name: str) -> Iterator[str]:
    """A database for one case."""
    with connect(server.url) as connection:
        execute(connection, f"CREATE DATABASE {identifier(name)} TEMPLATE {identifier(_TEMPLATE)}")
    try:
        yield server.database_url(name)
    finally:
        server.drop_database(name)


Spoil = Callable[[Prepared], Prepared]


def run_case(case: Case, url: str, folder: Path, slot: str, spoil: Spoil | None = None) -> Outcome:
    """Run to the end, or to the first comparison that fails.

    Args:
        case: what to do.
        url: an empty database, from `database_of`.
        folder: for the schema files.
        slot: a name that no other slot of the server has.
        spoil: breaks what was prepared, for tests of the comparison.

    Raises:
        HeadraceError: where the product gave up.
        AssertionError: where it broke a promise, or a statement of ours is no SQL.
    """
    _fill(case, url)
    outcome = Outcome()
    with Writers(url) as writers:
        builder = _Builder(case, url, folder, slot, list(_load(case, folder)), spoil)
        deployment = builder.build(lambda: _meanwhile(case, writers))
        run = _Run(case, writers, builder, deployment, outcome)
        try:
            run.all(case.script)
        finally:
            run.close()
        outcome.statements, outcome.refused = writers.done, writers.refused
    return outcome


@dataclass(frozen=True, slots=True)
class _Deployment:
    prepared: Prepared
    sink: MemorySink
    follower: Follower


@dataclass
class _Builder:
    """Builds all indexes, the first time and after what the log does not tell."""

    case: Case
    url: str
    folder: Path
    slot: str
    declared: Sequence[IndexSpec]
    spoil: Spoil | None
    built: int = 0

    def build(self, meanwhile: Callable[[], None] = lambda: None) -> _Deployment:
        self.built += 1
        sink, tuning = MemorySink(), self.case.tuning
        slot, signals = f"{self.slot}_{self.built}", self.folder / f"signals{self.built}"
        signals.mkdir()
        prepared = prepare(self.url, self.declared, slot, sink, meanwhile, large_change=tuning.large_change)
        prepared = prepared if self.spoil is None else self.spoil(prepared)
        return _Deployment(prepared, sink, Follower(prepared, sink, tuning, signals))


def _fill(case: Case, url: str) -> None:
    with connect(url) as connection:
        for sql in case.database.statements():
            execute(connection, sql)
        for sql in case.fill:
            with contextlib.suppress(connection.IntegrityError):
                execute(connection, sql)


def _load(case: Case, folder: Path) -> Iterator[IndexSpec]:
    for name, schema in case.schemas.items():
        path = folder / f"{name}.schema.yml"
        path.write_text(text_of(schema), encoding="utf-8")
        yield load_schema(path, name)


def _meanwhile(case: Case, writers: Writers) -> None:
    for step in case.meanwhile:
        if isinstance(step, Statement | Control):
            writers.take(step)


@dataclass
class _Run:
    case: Case
    writers: Writers
    builder: _Builder
    deployment: _Deployment
    outcome: Outcome
    began: float = field(default_factory=time.monotonic)
    has_unlogged: bool = False
    has_renamed: bool = False
    has_stopped: bool = False

    @property
    def follower(self) -> Follower:
        """Of the indexes that are built now."""
        return self.deployment.follower

    def close(self) -> None:
        """End following, and count what was done."""
        self.outcome.batches += self.follower.batches
        self.outcome.restarts += self.follower.restarts
        self.outcome.deferred += self.follower.deferred
        self.follower.close()

    def all(self, script: Sequence[Step]) -> None:
        """From one comparison to the next."""
        waiting: list[Step] = []
        for step in script:
            if not isinstance(step, Compare):
                waiting.append(step)
                continue
            (self._beside if self.case.side_by_side else self._in_turn)(waiting)
            if self.outcome.cut_off:
                return
            waiting = []
            self._compare()
            if self.outcome.wrong or self._is_late():
                return

    def _is_late(self) -> bool:
        self.outcome.cut_off = time.monotonic() > self.began + _LONGEST_SECONDS
        return self.outcome.cut_off

    def _in_turn(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self._is_late():
                return
            if isinstance(step, Statement | Control):
                self._note(step)
                self.writers.take(step)
            else:
                self.writers.let_go()
                self._step(step)

    def _note(self, step: Statement | Control) -> None:
        if isinstance(step, Statement):
            self.has_unlogged |= step.is_unlogged
            self.has_renamed |= step.is_rename

    def _beside(self, steps: Sequence[Step]) -> None:
        """The writers in threads of their own, the pipeline in this one."""
        by_session: dict[int, list[Statement | Control]] = {}
        for step in steps:
            if isinstance(step, Statement | Control):
                self._note(step)
                by_session.setdefault(step.session, []).append(step)
        failures: list[Exception] = []
        threads = [
            threading.Thread(target=self._write, args=(own, failures), daemon=True)
            for own in by_session.values()
        ]
        for thread in threads:
            thread.start()
        for step in steps:
            if not isinstance(step, Statement | Control):
                self._step(step)
        while any(thread.is_alive() for thread in threads):
            self._step(Apply(1, 1 << 30, None))
        if failures:
            raise failures[0]

    def _write(self, steps: Sequence[Statement | Control], failures: list[Exception]) -> None:
        try:
            for step in steps:
                self.writers.take(step, alone=False)
            self.writers.let_go(steps[-1].session)
        except Exception as error:  # noqa: BLE001 - a thread's last words
            failures.append(error)

    def _step(self, step: Step) -> None:
        if self.has_stopped:
            return
        try:
            self._follow(step)
        except HeadraceError as error:
            if error.kind not in _ALTERED or not self.has_unlogged:
                raise
            self.has_stopped = True  # what the log says of a table that was altered

    def _follow(self, step: Step) -> None:
        match step:
            case Apply(times, size, rows):
                for _ in range(times):
                    if not self.follower.take(Limit(size, rows)):
                        break
            case WorkOff(chunks):
                self.follower.work_off(chunks)
            case Restart(how, documents):
                self.follower.restart(how, documents)
            case Refuse(number):
                names = list(self.deployment.prepared.specs)
                self.outcome.rejected += self.follower.refuse(names[number % len(names)])
            case Compare():
                self.follower.drain()
            case Checkpoint():
                self.follower.checkpoint()
            case _:
                raise AssertionError(step)

    def _compare(self) -> None:
        """No writer moves meanwhile; what is not committed is in neither side."""
        self.writers.let_go()
        self._step(Compare())
        self._look()
        expected = naive_documents(self.builder.url, list(self.deployment.prepared.specs.values()))
        for name, documents in expected.items():
            bodies = self.deployment.sink.bodies(name)
            actual = {key: json.loads(body, parse_float=Decimal) for key, body in bodies.items()}
            self.outcome.compared += len(documents)
            self.outcome.wrong += [f"{name}: {line}" for line in differences(documents, actual)]  # type: ignore[arg-type]

    def _look(self) -> None:
        """Build everything anew where the catalog says that rows changed beside the log."""
        drift, prepared = look_at_catalog(self.deployment.prepared)
        self.deployment = replace(self.deployment, prepared=prepared)
        if not (self.has_unlogged or self.has_renamed):
            self.outcome.wrong += [f"nothing was altered, and {found.what}" for found in drift.wrong]
        if self.has_stopped or (self.has_unlogged and (drift.wrong or drift.emptied)):
            self.writers.commit()  # a new slot waits for them
            self.close()
            self.deployment = self.builder.build()
            self.outcome.rebuilt += 1
        self.has_unlogged = self.has_renamed = self.has_stopped = False
