"""Generate the page of the Spark sources' options from their models."""

from __future__ import annotations

from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from headrace.datasources.options import DatabaseOptions
from headrace.datasources.source_options import CdcOptions, SnapshotOptions

_HEAD = """\
# Options of the Spark sources

**For Spark programmers**: every option of `postgres_cdc` and `postgres_snapshot`.

Names are case-insensitive, and `create_slot` means the same as `createSlot`. An unknown one is refused with
the nearest that is known. All are checked when the DataFrame is loaded; no message shows a value.
"""
_TABLE = "| option | if absent | what it means |\n|---|---|---|"


def page() -> str:
    """Return the page's text."""
    sections = {
        "The database and the tables: both sources": dict(DatabaseOptions.model_fields),
        "Following tables: `postgres_cdc`": _own(CdcOptions),
        "Reading a table: `postgres_snapshot`": _own(SnapshotOptions),
    }
    parts = [_HEAD, *(f"## {title}\n\n{_TABLE}\n{_rows(fields)}\n" for title, fields in sections.items())]
    return "\n".join(parts)


def _own(model: type[DatabaseOptions]) -> dict[str, FieldInfo]:
    shared = DatabaseOptions.model_fields
    return {name: field for name, field in model.model_fields.items() if name not in shared}


def _rows(fields: dict[str, FieldInfo]) -> str:
    return "\n".join(_row(name, field) for name, field in fields.items())


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{to_camel(name)}` | {_default(field)} | {field.description} |"


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "an error"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value and value % (1 << 20) == 0:
        return f"`{value >> 20}m`"
    return f"`{value}`" if isinstance(value, str | int) else ""
