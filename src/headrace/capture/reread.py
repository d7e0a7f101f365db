"""Read TOAST values that the log left out from the table.

PostgreSQL leaves a large value that an UPDATE did not change out of the log, unless the replica identity is
FULL. It is read from the table: the row's newest value, or none where the row was deleted since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from headrace.capture.unchanged import Key, Look
from headrace.errors import HeadraceError, retrying
from headrace.model import TableName
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_KEYS_AT_ONCE = 1_000
_NO_COLUMN = "(SQLSTATE 42703)"
_COLUMNS = """
SELECT a.attname::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True, slots=True)
class Reread:
    """Reads rows of a table again by their key.

    Attributes:
        table: the table.
        key: the key columns and their SQL types.
        may_change: whether a column may have been dropped; its value is NULL then.
        operators: the SQL operators that compare key columns, where they are not `=`.
    """

    table: TableName
    key: Mapping[str, str]
    may_change: bool = False
    operators: Mapping[str, str] = field(default_factory=dict)

    def sql(self, columns: Sequence[str]) -> str:
        """Return the query for `columns`; its parameters are one array of texts for each key column."""
        arrays = ", ".join(f"${number}::text[]" for number in range(1, len(self.key) + 1))
        names = [f"k{number}" for number in range(1, len(self.key) + 1)]
        matches = " AND ".join(
            f"t.{identifier(column)} {self.operators.get(column, '=')} given.{name}::{kind}"
            for name, (column, kind) in zip(names, self.key.items(), strict=True)
        )
        read = ", ".join(output_text(f"t.{identifier(column)}") for column in columns)
        return (
            f"SELECT given.place, {read} FROM unnest({arrays}) WITH ORDINALITY AS given "  # noqa: S608 (quoted)
            f"({', '.join(names)}, place) JOIN {quoted(self.table)} AS t ON {matches}"
        )

    def read(
        self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]
    ) -> dict[int, tuple[str | None, ...]]:
        """Read the newest texts of `columns`, by the key's index in `keys`; deleted rows are absent.

        It waits until the server has flushed what was read.

        Raises:
            HeadraceError: CONNECTION, PRIVILEGE, DATABASE.
        """
        try:
            return self._read(session, keys, columns)
        except HeadraceError as error:
            if not self.may_change or not error.cause.endswith(_NO_COLUMN):
                raise
        existing = {name for (name,) in session.query(_COLUMNS, (self.table.schema, self.table.name))}
        present = [name for name in columns if name in existing]
        rows = self._read(session, keys, present) if present else dict.fromkeys(range(len(keys)), ())
        return {
            place: tuple(dict(zip(present, texts, strict=True)).get(name) for name in columns)
            for place, texts in rows.items()
        }

    def _read(
        self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]
    ) -> dict[int, tuple[str | None, ...]]:
        rows: dict[int, tuple[str | None, ...]] = {}
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            page = keys[first : first + _KEYS_AT_ONCE]
            parts = [[key[number] for key in page] for number in range(len(self.key))]
            for place, *texts in session.query(self.sql(columns), parts):
                rows[first + place - 1] = tuple(texts)
        session.await_flush()
        return rows


@contextlib.contextmanager
def lookups(url: str) -> Iterator[Callable[[Reread], Look]]:
    """Look up values of several tables over one session, which the first lookup opens.

    A lookup waits while the server cannot be reached.

    Raises:
        HeadraceError: from a lookup: AUTHENTICATION, PRIVILEGE, DATABASE.
    """
    with contextlib.ExitStack() as opened:
        session: ReadSession | None = None

        def look(
            reread: Reread, keys: Sequence[Key], columns: Sequence[str]
        ) -> dict[int, tuple[str | None, ...]]:
            nonlocal session
            for attempt in retrying():
                with attempt:
                    if session is None or session.closed:
                        session = opened.enter_context(ReadSession(url))
                    return reread.read(session, keys, columns)
            raise AssertionError

        yield lambda reread: partial(look, reread)
