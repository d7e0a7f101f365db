"""Check that the functions in raw filters give the same value at every reading.

Only the declaration of a user's function is known: one that is declared IMMUTABLE is believed, even if it
reads a table.
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
"""The schema in which a reading session looks up names without a schema."""

# Of several functions with one name the most volatile counts: the types decide which one is called.
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
    """Return findings about the functions in raw filters; one query, none without such filters.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    filters = {
        condition: _functions_of(condition)
        for spec in specs
        for _, condition in spec.conditions()
        if condition.raw and not condition.unsafe
    }
    names = sorted({name for called in filters.values() for name in called})
    if not names:
        return []
    rows = session.query(_VOLATILITY, ([schema for schema, _ in names], [name for _, name in names]))
    volatile = {(schema, name) for schema, name, is_volatile, _ in rows if is_volatile}
    stable = {
        (schema, name) for schema, name, _, is_stable in rows if is_stable and schema != _OWN
    } - volatile
    kinds: Mapping[Function, Literal["error", "warning"]] = {
        **dict.fromkeys(stable, "warning"),
        **dict.fromkeys(volatile, "error"),
    }
    return [
        _finding(kinds[name], condition, name)
        for condition, called in filters.items()
        for name in called
        if name in kinds
    ]


def _functions_of(condition: Filter) -> tuple[Function, ...]:
    names = ((schema or _OWN, name) for schema, name in called_functions(condition.raw or ""))
    return tuple(dict.fromkeys(names))


def _finding(level: Literal["error", "warning"], condition: Filter, name: Function) -> BindingFinding:
    shown = name[1] if name[0] == _OWN else ".".join(name)
    if level == "error":
        problem = f"the function {shown} is VOLATILE: it may give another value at every reading"
        remedy = f"If it does not, declare it IMMUTABLE. {RAW_REMEDY}"
    else:
        problem = f"the function {shown} is STABLE: what else it reads leads to no document when it changes"
        remedy = (
            "If it reads nothing else, declare it IMMUTABLE; `unsafe: true` beside the filter accepts it."
        )
    return BindingFinding(level, LocatedError(Kind.BINDING, condition.place, problem, remedy))
