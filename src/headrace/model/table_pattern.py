"""Parse and match lists of tables with wildcards: `public.users, shop.order_*`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from headrace.model.names import TableName

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s".,]+))\s*')

_PLAIN = re.compile(r'[^\s".,*]+')


@dataclass(frozen=True)
class TablePattern:
    """A schema and a table name in which an unquoted `*` matches any text.

    Attributes:
        schema, name: the parts without quotes.
        quoted: whether each part was quoted, so that its `*` is an ordinary character.
    """

    schema: str
    name: str
    quoted: tuple[bool, bool] = (False, False)

    @property
    def exact(self) -> TableName | None:
        """The only table that matches; None for a pattern with a wildcard."""
        parts = zip((self.schema, self.name), self.quoted, strict=True)
        if any("*" in part and not quoted for part, quoted in parts):
            return None
        return TableName(self.schema, self.name)

    def matches(self, table: TableName) -> bool:
        """Return whether `table` matches."""
        schema, name = self._expressions
        return bool(schema.fullmatch(table.schema) and name.fullmatch(table.name))

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def _expressions(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        schema, name = (
            # In quotes a `*` is an ordinary character of a name, as in SQL.
            re.compile(re.escape(part) if quoted else re.escape(part).replace(r"\*", ".*"), re.DOTALL)
            for part, quoted in zip((self.schema, self.name), self.quoted, strict=True)
        )
        return schema, name


def parse_tables(text: str) -> tuple[TablePattern, ...]:
    """Parse a comma-separated list of tables, each `name` (in the schema `public`) or `schema.name`.

    A part in double quotes may hold any character, as in SQL. Letter case is kept as it is written.

    Raises:
        ValueError: `text` is no such list.
    """
    patterns = []
    for parts in _parse_list(text, "tables: write schema.table, schema.table"):
        if len(parts) == 1:
            parts.insert(0, ("public", False))
        if len(parts) > 2:  # noqa: PLR2004
            raise ValueError(f"{text.strip()!r} names more than a schema and a table")
        (schema, first), (name, second) = parts
        patterns.append(TablePattern(schema, name, (first, second)))
    return tuple(patterns)


def format_table(table: TableName) -> str:
    """Return the text that `parse_tables` reads as exactly `table`."""
    return f"{format_name(table.schema)}.{format_name(table.name)}"


def format_name(name: str) -> str:
    """Return the text that `parse_names` reads as `name`; quoted where needed."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names; in double quotes a name may hold any character, as in SQL.

    Raises:
        ValueError: it is no such list.
    """
    return tuple(
        ".".join(name for name, _ in parts) for parts in _parse_list(text, "columns: write column, column")
    )


def _parse_list(text: str, what: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield for each element of a list its parts between dots, and whether each was quoted."""
    at = 0
    while True:
        parts = []
        while (part := _PART.match(text, at)) is not None:
            quoted = part[1] is not None
            parts.append((part[1].replace('""', '"') if quoted else part[2], quoted))
            at = part.end()
            if text[at : at + 1] != ".":
                break
            at += 1
        if not parts or text[at - 1] == "." or text[at : at + 1] not in {"", ","}:
            raise ValueError(f"{text.strip()!r} is no list of {what}")
        yield parts
        if at == len(text):
            return
        at += 1


def match_tables(patterns: Iterable[TablePattern], tables: Iterable[TableName]) -> tuple[TableName, ...]:
    """Return the tables that match any pattern, in their order."""
    patterns = tuple(patterns)
    return tuple(table for table in tables if any(pattern.matches(table) for pattern in patterns))


def one_table(text: str) -> TableName:
    """Parse the name of exactly one table.

    Raises:
        ValueError: `text` names none or several.
    """
    patterns = parse_tables(text)
    if len(patterns) != 1 or (table := patterns[0].exact) is None:
        raise ValueError(f"{text!r} is no name of one table")
    return table
