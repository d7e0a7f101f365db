"""Do the functions that raw filters call give the same value at every reading? The catalog knows.

A function that is not PostgreSQL's own is known by its declaration alone: one that is declared IMMUTABLE and
reads a table all the same is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from headrace.catalog.binding import BindingFinding
from headrace.errors import Kind
from headrace.postgres.session import ReadSession
from headrace.schema.problems import LocatedError
from headrace.schema.raw import RAW_REMEDY, called_functions
from headrace.schema.tree import Filter, IndexSpec

_OWN = "pg_catalog"
"""Where a reading session looks for names without a schema."""

# Of one name the least dependable counts: which of them is meant depends on the types.
_VOLATILITY = """
SELECT n.nspname::text, p.proname::text, bool_or(p.provolatile = 'v'), bool_or(p.provolatile = 's')
FROM unnest($1::text[], $2::text[]) AS called (nspname, proname)
JOIN pg_namespace n ON n.nspname = called.nspname
JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = called.proname
WHERE p.prokind = 'f'
GROUP BY 1, 2
"""

Function = tuple[str, str]
"""Schema and name."""


def function_findings(session: ReadSession, specs: Iterable[IndexSpec]) -> list[BindingFinding]:
    """What the functions in raw filters do to documents; one query, none without such filters.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    filters = {
        one: _called(one) for spec in specs for _, one in spec.conditions() if one.raw and not one.unsafe
    }
    names = sorted({name for called in filters.values() for name in called})
    if not names:
        return []
    rows = session.query(_VOLATILITY, ([schema for schema, _ in names], [name for _, name in names]))
    volatile = {(schema, name) for schema, name, never_same, _ in rows if never_same}
    stable = {(schema, name) for schema, name, _, within in rows if within and schema != _OWN} - volatile
    kinds: Mapping[Function, Literal["error", "warning"]] = {
        **dict.fromkeys(stable, "warning"),
        **dict.fromkeys(volatile, "error"),
    }
    return [
        _finding(kinds[name], one, name)
        for one, called in filters.items()
        for name in called
        if name in kinds
    ]


def _called(one: Filter) -> tuple[Function, ...]:
    names = ((schema or _OWN, name) for schema, name in called_functions(one.raw or ""))
    return tuple(dict.fromkeys(names))


def _finding(level: Literal["error", "warning"], one: Filter, name: Function) -> BindingFinding:
    shown = name[1] if name[0] == _OWN else ".".join(name)
    if level == "error":
        problem = f"the function {shown} is VOLATILE: it may give another value at every reading"
        remedy = f"If it does not, declare it IMMUTABLE. {RAW_REMEDY}"
    else:
        problem = f"the function {shown} is STABLE: what else it reads leads to no document when it changes"
        remedy = (
            "If it reads nothing else, declare it IMMUTABLE; `unsafe: true` beside the filter accepts it."
        )
    return BindingFinding(level, LocatedError(Kind.BINDING, one.place, problem, remedy))
