"""What of a case that fails is needed for it to fail? Parts are left out as long as it still does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from support.soak.cases import Case
from support.soak.declaring import Node
from support.soak.scripts import Compare, Step

_Part = TypeVar("_Part")


def shorten(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
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
