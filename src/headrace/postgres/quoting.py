"""Quote names and values as SQL, and select values as text; the one place where SQL is quoted. Pure."""

from __future__ import annotations

from headrace.model.names import TableName


def identifier(name: str) -> str:
    """Return `name` as a quoted SQL identifier.

    Raises:
        ValueError: the name is empty or holds a NUL character.
    """
    if not name or "\0" in name:
        raise ValueError(f"not an identifier: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def table(name: TableName) -> str:
    """Return a qualified table name as SQL."""
    return f"{identifier(name.schema)}.{identifier(name.name)}"


def literal(value: str | float | bool | None) -> str:
    """Return `value` as an SQL literal; text is untyped and takes its type from the context.

    The literal is correct for either value of `standard_conforming_strings`.

    Raises:
        ValueError: the text holds a NUL character, which PostgreSQL cannot store.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else repr(value)
    quoted = replication_literal(text)
    # The blank keeps the E from becoming part of a word before it.
    return " E" + quoted.replace("\\", "\\\\") if "\\" in quoted else quoted


def replication_literal(text: str) -> str:
    """Return `text` as a literal of the replication grammar, which has no `E''` and no escapes.

    Raises:
        ValueError: the text holds a NUL character.
    """
    if "\0" in text:
        raise ValueError("a PostgreSQL text holds no NUL character")
    return "'" + text.replace("'", "''") + "'"


def output_text(sql: str) -> str:
    """Return SQL for the text that the log carries of the expression `sql`: its type's output; NULL for NULL.

    A cast to text gives another text for some types: it cuts the padding of `char(n)`, adds `/32` to an inet
    and spells booleans out. A composite value of NULLs alone is not NULL.
    """
    return f"CASE WHEN num_nulls({sql}) = 0 THEN format('%s', {sql}) END"
