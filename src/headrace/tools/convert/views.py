"""Find views that show columns of one table under their own names, with or without a condition.

Such a view can be read as its table with a filter, and is right after every change (decision 0110).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headrace.model.names import TableName, name_arrays
from headrace.postgres.session import ReadSession
from headrace.schema.raw import raw_problem

# PostgreSQL itself knows which views are no more than one table's columns and a WHERE: those through which it
# lets a user write, without a rule or trigger of their own (16: DELETE). Their stored tree names the column
# that each of theirs comes from; a number of 0 is an expression.
_VIEWS = r"""
SELECT n.nspname::text, c.relname::text, pg_get_viewdef(c.oid),
    pg_relation_is_updatable(c.oid, false) & 16 <> 0
        AND (SELECT count(*) = 1 FROM pg_rewrite r WHERE r.ev_class = c.oid),
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
    ARRAY(SELECT coalesce(a.attname::text, '')
        FROM pg_rewrite r, regexp_matches(r.ev_action::text,
            ':ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (\d+)', 'g') WITH ORDINALITY AS m (m, place)
        LEFT JOIN pg_attribute a ON a.attrelid = m.m[1]::oid AND a.attnum = m.m[2]::int AND m.m[2] <> '0'
        WHERE r.ev_class = c.oid ORDER BY m.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'v' AND (n.nspname, c.relname) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_FROM = re.compile(r"\n   FROM (?P<table>.*?)(?:\n  WHERE (?P<condition>.*))?;\s*", re.DOTALL)
_OTHER_NAME = "its condition names the table by another name"


@dataclass(frozen=True, slots=True)
class TableView:
    """What a view is made of.

    Attributes:
        columns: those that it shows.
        condition: which rows of its table it shows, as SQL; empty: all.
        problem: why it cannot be read as its table; empty: it can.
    """

    columns: tuple[str, ...]
    condition: str = ""
    problem: str = ""


def read_views(
    session: ReadSession, bases: Mapping[TableName, Collection[TableName]]
) -> dict[TableName, TableView]:
    """Read views.

    Args:
        session: of the database.
        bases: the tables that each view reads.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = session.query(_VIEWS, name_arrays(bases))
    return dict(_views(rows, bases))


def _views(
    rows: Collection[tuple[str, str, str, bool, list[str], list[str]]],
    bases: Mapping[TableName, Collection[TableName]],
) -> Iterator[tuple[TableName, TableView]]:
    for schema, name, text, is_plain, columns, origins in rows:
        view = TableName(schema, name)
        read = list(bases[view])
        if not is_plain or len(read) != 1:
            yield (
                view,
                TableView(tuple(columns), problem="it is more than columns and a condition of one table"),
            )
            continue
        renamed = [
            f"{new} is {old or 'an expression'}"
            for new, old in zip(columns, origins, strict=False)
            if new != old
        ]
        if renamed or len(columns) != len(origins):
            problem = f"not every column is its table's own: {', '.join(renamed) or 'a subquery is in it'}"
            yield view, TableView(tuple(columns), problem=problem)
            continue
        yield view, _conditioned(text, read[0], tuple(columns))


def _conditioned(text: str, base: TableName, columns: tuple[str, ...]) -> TableView:
    """Return the view with its condition, where that can stand in a schema file."""
    found = _FROM.search(text)
    if found is None:
        return TableView(columns, problem=_OTHER_NAME)
    # PostgreSQL quotes a name only where it must.
    before, named, alias = found["table"].replace('"', "").partition(f"{base.schema}.{base.name}")
    condition = found["condition"] or ""
    if before or not named or (alias and f"{alias.strip()}." in condition.replace('"', "")):
        return TableView(columns, problem=_OTHER_NAME)
    if condition and (problem := raw_problem(condition, unsafe=False)):
        return TableView(columns, problem=f"of its condition, {problem}")
    return TableView(columns, condition)
