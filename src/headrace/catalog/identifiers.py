"""What can the ids of an index's documents become? A key's text is one, and not every text is."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog.binding import BindingFinding
from headrace.catalog.table import Catalog, Column, Table
from headrace.errors import HeadraceError, Kind
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.schema.problems import LocatedError
from headrace.schema.tree import IndexSpec

LONGEST = 512
"""Bytes of an `_id` that OpenSearch takes; it takes no empty one either."""

_TEXTS = frozenset({"text", "varchar", "bpchar", "citext", "name"})
_SHORT = frozenset(
    "int2 int4 int8 oid numeric float4 float8 money bool uuid date time timetz timestamp timestamptz "
    "interval inet cidr macaddr macaddr8 pg_lsn xid xid8 char".split()
)
_SHORT_BYTES = 64
"""No text of such a value is longer; a numeric can be, and nobody's key is."""
_NAME_BYTES = 63
_CHARACTER_BYTES = 4

_CHECKS = """
SELECT pg_get_expr(k.conbin, k.conrelid)
FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND k.conkey = ARRAY[a.attnum]
WHERE k.contype = 'c' AND k.convalidated AND k.conrelid = $1::text::oid AND a.attname = $2
"""


def id_findings(session: ReadSession, spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    """Warns where a row can have a key that is no id; a CHECK on the column is tried out.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    table = catalog.tables.get(spec.table)
    key = [] if table is None else [table.column(name) for name in spec.primary_key]
    columns = [column for column in key if column is not None]
    if table is None or not columns or len(columns) < len(key):
        return []
    bound = longest_id(columns)
    too_long = bound is None or bound > LONGEST
    empty = len(columns) == 1 and columns[0].base_type in _TEXTS
    if len(columns) == 1:
        empty = empty and _admits(session, table, columns[0], "")
        too_long = too_long and _admits(session, table, columns[0], "x" * (LONGEST + 1))
    if not (empty or too_long):
        return []
    what = " or ".join(
        text for text, holds in (("empty", empty), (f"longer than {LONGEST} bytes", too_long)) if holds
    )
    names = ", ".join(one.name for one in columns)
    problem = (
        f"the id of a document is {names} of {table.name}, which may be {what}: OpenSearch takes no such id"
    )
    remedy, sql = _remedy(table, columns)
    return [BindingFinding("warning", LocatedError(Kind.BINDING, spec.place, problem, remedy), sql)]


def longest(column: Column) -> int | None:
    """The most bytes that a value's text has; None where nothing bounds it."""
    if column.base_type in {"varchar", "bpchar"}:
        return column.length * _CHARACTER_BYTES or None
    if column.base_type == "name" or column.category == "E":
        return _NAME_BYTES
    return _SHORT_BYTES if column.base_type in _SHORT else None


def longest_id(key: Sequence[Column]) -> int | None:
    """The most bytes of an id of `key`; in one of several parts `%` and `:` become three bytes each."""
    total = len(key) - 1
    for one in key:
        bound = longest(one)
        if bound is None:
            return None
        total += bound * (3 if len(key) > 1 and one.base_type in _TEXTS else 1)
    return total


def _admits(session: ReadSession, table: Table, column: Column, text: str) -> bool:
    """Whether the table's own checks on the column let a row have this text; yes where there are none."""
    if column.base_type not in _TEXTS:
        return True
    checks = [row[0] for row in session.query(_CHECKS, (str(table.oid), column.name))]
    if not checks:
        return True
    tested = " AND ".join(f"({one}) IS NOT FALSE" for one in checks)
    kind = "text" if column.base_type in ("varchar", "bpchar", "name") else column.type
    try:
        [(admitted,)] = session.query(
            f"SELECT {tested} FROM (SELECT {literal(text)}::{kind}) AS row ({identifier(column.name)})"  # noqa: S608
        )
    except HeadraceError as error:
        if error.kind is not Kind.DATABASE:
            raise
        return True
    return bool(admitted)


def _remedy(table: Table, columns: Sequence[Column]) -> tuple[str, tuple[str, ...]]:
    if len(columns) > 1 or columns[0].base_type not in _TEXTS:
        return "Such a row is refused by the index; `on_error` says what happens then.", ()
    [column] = columns
    name = identifier(f"{column.name}_is_an_id"[:63])
    check = f"CHECK (octet_length({identifier(column.name)}::text) BETWEEN 1 AND {LONGEST})"
    sql = (
        f"ALTER TABLE {quoted(table.name)} ADD CONSTRAINT {name} {check} NOT VALID;",
        f"ALTER TABLE {quoted(table.name)} VALIDATE CONSTRAINT {name};",
    )
    return f"If there is no such row, let the database keep it so: {' '.join(sql)}", sql
