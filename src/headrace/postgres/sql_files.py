"""The long SQL statements, which stand in `.sql` files beside their callers: how a caller reads one."""

from importlib.resources import files
from typing import LiteralString


def read_sql(room: str, name: str) -> LiteralString:
    """Read the statement of `{name}.sql` in a room's folder `sql`.

    `room` is the caller's `__package__`. The text ships with the package and no value is ever put into
    it, so it is as literal as one in the code; parameters are bound by psycopg.
    """
    return (files(room) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
