"""How is a value selected as the very text that the log would carry?"""

from __future__ import annotations


def printed(sql: str) -> str:
    """The text that the type's output function gives for `sql`, an expression; NULL where it is NULL.

    A cast to text is another thing for some types: it cuts the padding of `char(n)`, adds `/32` to an inet
    and spells booleans out. A composite value of NULLs alone is a value.
    """
    return f"CASE WHEN num_nulls({sql}) = 0 THEN format('%s', {sql}) END"
