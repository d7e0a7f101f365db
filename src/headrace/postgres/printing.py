"""Select a value as the text that the log carries."""

from __future__ import annotations


def printed(sql: str) -> str:
    """Return SQL for the text that the type's output function gives for the expression `sql`; NULL for NULL.

    A cast to text gives another text for some types: it cuts the padding of `char(n)`, adds `/32` to an inet
    and spells booleans out. A composite value of NULLs alone is not NULL.
    """
    return f"CASE WHEN num_nulls({sql}) = 0 THEN format('%s', {sql}) END"
