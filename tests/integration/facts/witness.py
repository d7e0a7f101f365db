"""Read changes as PostgreSQL's own `test_decoding` plugin prints them: a second reference for our decoder.

Its text is parsed here; nothing of Headrace's decoding is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Self

from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.replication import SETTINGS
from integration.capture.following import Source

_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\s".,\[\]:]+)'
_TABLE = rf"{_IDENTIFIER}\.{_IDENTIFIER}"
_LINE = re.compile(rf"table ({_TABLE}(?:, {_TABLE})*): (INSERT|UPDATE|DELETE|TRUNCATE): (.*)", re.DOTALL)
_ONE_TABLE = re.compile(rf"({_IDENTIFIER})\.({_IDENTIFIER})")
_COLUMN = re.compile(
    rf"({_IDENTIFIER})\[(.*?)\]:(null|unchanged-toast-datum|B?'(?:[^']|'')*'|\S+)(?: |$)", re.DOTALL
)
_BOOLEANS = {"true": "t", "false": "f"}


class Kept(Enum):
    """A TOASTed value that did not change."""

    KEPT = "unchanged-toast-datum"


KEPT: Final = Kept.KEPT
Values = dict[str, "str | Kept | None"]


@dataclass(frozen=True)
class Witnessed:
    """A changed row, or one table of a TRUNCATE; NULLs are left out of `old`."""

    xid: int
    table: tuple[str, str]
    kind: str
    old: Values | None = None
    new: Values | None = None


class Witness:
    """A second slot of the same database; dropped at the end of the context."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._slot = f"{source.slot}_witness"
        source.query("SELECT pg_create_logical_replication_slot($1, 'test_decoding')", self._slot)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.query("SELECT pg_drop_replication_slot($1)", self._slot)

    def testimony(self) -> list[Witnessed]:
        """All changes so far; the settings that text depends on are ours."""
        with connect(self._source.url) as connection:
            for name, value in SETTINGS.items():
                execute(connection, f"SET {identifier(name)} = {literal(value)}")
            told = execute(
                connection,
                "SELECT xid::text::bigint, data FROM pg_logical_slot_get_changes($1, NULL, NULL)",
                (self._slot,),
            )
        return [change for xid, line in told if line.startswith("table ") for change in _parse(xid, line)]


def _parse(xid: int, line: str) -> Iterator[Witnessed]:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    tables, kind, rest = found.groups()
    for one in _ONE_TABLE.finditer(tables):
        table = (_name(one[1]), _name(one[2]))
        old, new = None, None
        if kind == "DELETE":
            old = _values(rest)
        elif kind == "UPDATE" and rest.startswith("old-key: "):
            # The old row ends where the words after it begin: no value outside quotes has a space.
            head, values = _columns(rest, len("old-key: "))
            old = values
            assert rest.startswith("new-tuple: ", head), rest
            new = _values(rest[head + len("new-tuple: ") :])
        elif kind != "TRUNCATE":
            new = _values(rest)
        yield Witnessed(xid, table, kind, old, new)


def _values(text: str) -> Values:
    end, values = _columns(text, 0)
    assert end == len(text), text
    return values


def _columns(text: str, position: int) -> tuple[int, Values]:
    """The columns from `position` on, and where the first thing after them is."""
    values: Values = {}
    while (found := _COLUMN.match(text, position)) is not None:
        values[_name(found[1])] = _value(found[2], found[3])
        position = found.end()
    return position, values


def _name(quoted: str) -> str:
    return quoted[1:-1].replace('""', '"') if quoted.startswith('"') else quoted


def _value(type_name: str, text: str) -> str | Kept | None:
    if text == "null":
        return None
    if text == KEPT.value:
        return KEPT
    if text.endswith("'"):
        return text.removeprefix("B")[1:-1].replace("''", "'")
    return _BOOLEANS[text] if type_name == "boolean" else text
