"""One case: everything that a number decides, as data that can be shown and shrunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from support.soak.follower import Tuning
from support.soak.random_database import Database, invent_database
from support.soak.random_schemas import Node, declare, text_of
from support.soak.random_workload import Writer
from support.soak.scripts import Compare, Control, Statement, Step, compose_script

_Part = TypeVar("_Part")


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
    # The backfill has no turn for a writer that would have to end first.
    meanwhile = [
        step for step in script[: random.choice((0, 0, 10))] if isinstance(step, Statement | Control)
    ]
    return Case(
        seed,
        database,
        schemas,
        fill,
        tuple(one for one in meanwhile if isinstance(one, Control) or not one.is_exclusive),
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


def shrink_case(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """A case that still fails and has less in it, as far as that is found in time.

    Args:
        case: one that fails.
        fails: runs a case; it may fail now and not the next time, then more is kept than is needed.
        seconds: how long it may take.
    """
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for smaller in _smaller(case):
            if time.monotonic() > deadline:
                break
            if fails(smaller):
                case, changed = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with a part left out, the largest parts first."""
    for name in case.schemas if len(case.schemas) > 1 else ():
        yield replace(case, schemas={name: case.schemas[name]})
    if case.side_by_side:
        yield replace(case, side_by_side=False)
    if case.meanwhile:
        yield replace(case, meanwhile=())
    for script in _without_some(case.script):
        yield replace(case, script=_ending(script))
    for fill in _without_some(case.fill):
        yield replace(case, fill=tuple(fill))
    for schemas in _less_declared(case.schemas):
        yield replace(case, schemas=schemas)


def _ending(script: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(script) if script and isinstance(script[-1], Compare) else (*script, Compare())


def _without_some(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """Without a half, a quarter, … of them; without single ones where they are few."""
    size = len(parts) // 2
    while size:
        for start in range(0, len(parts), size):
            yield [*parts[:start], *parts[start + size :]]
        size //= 2


def _less_declared(schemas: Mapping[str, Node]) -> Iterator[Mapping[str, Node]]:
    for name, schema in schemas.items():
        for less in _less(schema):
            yield {**schemas, name: less}


def _less(node: Node) -> Iterator[Node]:
    """The same without one of its fields or options, or with less in one of its fields."""
    for option in ("filters", "soft_delete", "order_by", "limit"):
        if option in node:
            yield {key: value for key, value in node.items() if key != option}
    fields: list[Node] = node.get("fields", [])
    for number, field in enumerate(fields):
        rest = [*fields[:number], *fields[number + 1 :]]
        if rest:
            yield {**node, "fields": rest}
        for less in _less(field):
            yield {**node, "fields": [*fields[:number], less, *fields[number + 1 :]]}
