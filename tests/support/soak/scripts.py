"""Scripts, as data: in which order several writers, and the pipeline between them, take their turns.

Every step can be left out: whatever remains is a script too. So a long one that fails can be shrunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from support.soak.random_workload import Writer

SESSIONS = 3
QueryEnd = Literal["clean", "unconfirmed", "torn", "cut"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A writer runs SQL in its transaction, which begins by itself.

    Attributes:
        guarded: a failure takes back only the statement, by a savepoint around it; else all since the last
            savepoint, or the whole transaction.
    """

    session: int
    sql: str
    guarded: bool = False

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody can read its table until the transaction has ended."""
        return self.sql.startswith(("TRUNCATE", "ALTER"))

    @property
    def is_unlogged(self) -> bool:
        """Whether rows change without a change in the log."""
        return " DETACH PARTITION " in self.sql

    @property
    def is_rename(self) -> bool:
        """Whether a table is called otherwise for a while."""
        return " RENAME TO " in self.sql


@dataclass(frozen=True, slots=True)
class Control:
    """A writer ends its transaction, or sets a savepoint and goes back to it."""

    session: int
    what: Literal["COMMIT", "ROLLBACK", "SAVEPOINT", "ROLLBACK TO", "RELEASE"]


@dataclass(frozen=True, slots=True)
class Apply:
    """The pipeline takes up to `times` batches of at most so many bytes of log and rows."""

    times: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class WorkOff:
    """Up to so many chunks of deferred documents are written."""

    chunks: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The pipeline ends and begins again.

    Attributes:
        how: `clean`: all that was applied is confirmed; `unconfirmed`: a batch is applied and not confirmed;
            `torn`: some of its documents are written, then it dies; `cut`: only the server ends the
            connection, and the reader is left to itself.
    """

    how: QueryEnd
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Refuse:
    """A cluster refuses what a batch has for one index, and the pipeline begins again."""

    index: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The server notes what runs, so that a slot need not decode all of its past again."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Everything that is committed is applied; then the documents must be right."""


Step = Statement | Control | Apply | WorkOff | Restart | Refuse | Checkpoint | Compare


def compose_script(random: Random, writer: Writer, transactions: int) -> list[Step]:
    """Transactions of several sessions in each other's way, with the pipeline's turns between them."""
    waiting = [list(_transactions(random, writer, session, transactions)) for session in range(SESSIONS)]
    steps = sum(map(len, waiting))
    every = max(1, steps // random.choice((2, 6, 12)))
    script: list[Step] = []
    behind = 0
    while any(waiting):
        session = random.choice([number for number, left in enumerate(waiting) if left])
        count = random.choice((1, 1, 1, 2, 4))
        script += waiting[session][:count]
        del waiting[session][:count]
        if random.random() < 0.22:
            script.append(_step(random))
        if len(script) - behind >= every:
            script.append(Compare())
            behind = len(script)
    return [*script, *(Control(session, "COMMIT") for session in range(SESSIONS)), Compare()]


def _step(random: Random) -> Step:
    roll = random.random()
    if roll < 0.7:
        size = random.choice((1, 300, 2_000, 20_000, 1 << 24))
        return Apply(random.choice((1, 1, 2, 5)), size, random.choice((None, None, 1, 3, 50)))
    if roll < 0.76:
        return WorkOff(random.randint(1, 6))
    if roll < 0.82:
        return Checkpoint()
    if roll < 0.86:
        return Refuse(random.randint(0, 2))
    how: QueryEnd = random.choice(("clean", "unconfirmed", "unconfirmed", "torn", "cut"))
    return Restart(how, random.randint(0, 4))


def _transactions(random: Random, writer: Writer, session: int, count: int) -> Iterator[Step]:
    for _ in range(count):
        saved = False
        commit = random.choice(("on", "local", "off"))
        yield Statement(session, f"SET LOCAL synchronous_commit = {commit}", guarded=False)
        for _ in range(random.choice((1, 1, 2, 3, 5))):
            if random.random() < 0.15:
                yield Control(session, "SAVEPOINT")
                saved = True
            yield Statement(session, writer.statement(), guarded=random.random() < 0.6)
            if saved and random.random() < 0.3:
                yield Control(session, random.choice(("ROLLBACK TO", "RELEASE")))
                saved = False
        yield Control(session, "ROLLBACK" if random.random() < 0.12 else "COMMIT")
