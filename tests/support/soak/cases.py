"""What is one case? Everything that a number decides, as data that can be shown and shortened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from support.soak.declaring import Node, declare, text_of
from support.soak.following import Tuning
from support.soak.inventing import Database, invent_database
from support.soak.scripts import Control, Statement, Step, compose_script
from support.soak.writing import Writer


@dataclass(frozen=True, slots=True)
class Case:
    """A database, its schema files, and what happens.

    Attributes:
        fill: statements before the set-up; one that fails is left out.
        meanwhile: what writers do between the slot and the end of the backfill.
        side_by_side: whether each session has a thread of its own.
    """

    seed: int
    database: Database
    schemas: Mapping[str, Node]
    fill: tuple[str, ...]
    meanwhile: tuple[Step, ...]
    script: tuple[Step, ...]
    tuning: Tuning
    side_by_side: bool = False

    def text(self) -> str:
        """For people: what to do by hand."""
        parts = [f"-- seed {self.seed}, {self.tuning}{', side by side' if self.side_by_side else ''}"]
        parts += [f"{sql};" for sql in (*self.database.statements(), *self.fill)]
        for name, schema in self.schemas.items():
            parts += [f"-- {name}.schema.yml", *(f"--   {line}" for line in text_of(schema).splitlines())]
        parts += ["-- the slot", *_shown(self.meanwhile), "-- backfilled", *_shown(self.script)]
        return "\n".join(parts)


def _shown(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        match step:
            case Statement(session, sql, guarded):
                yield f"/* {session}{' guarded' if guarded else ''} */ {sql};"
            case Control(session, what):
                yield f"/* {session} */ {what};"
            case _:
                yield f"-- {step}"


def make_case(seed: int, transactions: int = 12) -> Case:
    """The case of this number, with so many transactions of each session."""
    random = Random(seed)
    database = invent_database(random)
    schemas, read = declare(random, database)
    writer = Writer(random, database, read)
    fill = tuple(writer.fill())
    script = tuple(compose_script(random, writer, transactions))
    meanwhile = [
        step for step in script[: random.choice((0, 0, 10))] if isinstance(step, Statement | Control)
    ]
    return Case(
        seed,
        database,
        schemas,
        fill,
        tuple(one for one in meanwhile if isinstance(one, Control) or "TRUNCATE" not in one.sql),
        script,
        Tuning(
            chunk=random.choice((1 << 10, 16 << 10, 4 << 20)),
            buffer=random.choice((8 << 10, 1 << 20, 16 << 20)),
            backlog=random.choice((None, 1, 4 << 10)),
            window=random.choice((8 << 10, 1 << 20)),
            unfinished=random.random() < 0.7,
            large_change=random.choice((1, 50_000)),
            shares=random.choice((1, 1, 3)),
        ),
        side_by_side=random.random() < 0.25,
    )
