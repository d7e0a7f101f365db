"""Check that the text of a key can be the id of a document."""

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
"""The most bytes of an `_id` in OpenSearch, which refuses an empty one too."""

_TEXTS = frozenset({"text", "varchar", "bpchar", "citext", "name"})
_SHORT = frozenset(
    "int2 int4 int8 oid numeric float4 float8 money bool uuid date time timetz timestamp timestamptz "
    "interval inet cidr macaddr macaddr8 pg_lsn xid xid8 char".split()
)
_SHORT_BYTES = 64
"""The most bytes of such a value's text; a numeric may be longer, but not as a key in practice."""
_NAME_BYTES = 63
_CHARACTER_BYTES = 4

_CHECKS = """
SELECT pg_get_expr(k.conbin, k.conrelid)
FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND k.conkey = ARRAY[a.attnum]
WHERE k.contype = 'c' AND k.convalidated AND k.conrelid = $1::text::oid AND a.attname = $2
"""


def id_findings(session: ReadSession, spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    """Warn where a row can have a key that is no valid id; a CHECK on the column is evaluated.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    table = catalog.tables.get(spec.table)
    key = [] if table is None else [table.column(name) for name in spec.primary_key]
    columns = [column for column in key if column is not None]
    if table is None or not columns or len(columns) < len(key):
        return []
    bound = max_id_bytes(columns)
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
    names = ", ".join(column.name for column in columns)
    problem = (
        f"the id of a document is {names} of {table.name}, which may be {what}: OpenSearch takes no such id"
    )
    remedy, sql = _remedy(table, columns)
    return [BindingFinding("warning", LocatedError(Kind.BINDING, spec.place, problem, remedy), sql)]


def max_text_bytes(column: Column) -> int | None:
    """Return the most bytes that a value's text has; None without a bound."""
    if column.base_type in {"varchar", "bpchar"}:
        return column.length * _CHARACTER_BYTES or None
    if column.base_type == "name" or column.category == "E":
        return _NAME_BYTES
    return _SHORT_BYTES if column.base_type in _SHORT else None


def max_id_bytes(key: Sequence[Column]) -> int | None:
    """Return the most bytes of an id of `key`; with several parts `%` and `:` become three bytes each."""
    total = len(key) - 1
    for column in key:
        bound = max_text_bytes(column)
        if bound is None:
            return None
        total += bound * (3 if len(key) > 1 and column.base_type in _TEXTS else 1)
    return total


def _admits(session: ReadSession, table: Table, column: Column, text: str) -> bool:
    """Return whether the table's own checks on the column allow this text; True without checks."""
    if column.base_type not in _TEXTS:
        return True
    checks = [row[0] for row in session.query(_CHECKS, (str(table.oid), column.name))]
    if not checks:
        return True
    tested = " AND ".join(f"({check}) IS NOT FALSE" for check in checks)
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
