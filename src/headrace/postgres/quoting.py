"""How does a name or a value become SQL text, safely? Pure; the one place where SQL is quoted."""

from __future__ import annotations

import json

from headrace.model import TableName


def identifier(name: str) -> str:
    """`name` as a quoted SQL identifier.

    Raises:
        ValueError: the name is empty or holds a NUL character.
    """
    if not name or "\0" in name:
        raise ValueError(f"not an identifier: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def table(name: TableName) -> str:
    """A qualified table name as SQL."""
    return f"{identifier(name.schema)}.{identifier(name.name)}"


def literal(value: str | float | bool | None) -> str:
    """`value` as an SQL literal; text is an untyped literal that takes its type from its place.

    Correct whatever `standard_conforming_strings` says.

    Raises:
        ValueError: the text holds a NUL character, which PostgreSQL cannot store.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else repr(value)
    if "\0" in text:
        raise ValueError("a PostgreSQL text holds no NUL character")
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in quoted else quoted


def replication_literal(text: str) -> str:
    """`text` as a literal of the replication grammar, which knows no `E''` and no escapes.

    Raises:
        ValueError: the text holds a NUL character.
    """
    if "\0" in text:
        raise ValueError("a PostgreSQL text holds no NUL character")
    return "'" + text.replace("'", "''") + "'"


def json_text(value: object) -> str:
    """`value` as an SQL literal that holds its JSON text."""
    return literal(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
