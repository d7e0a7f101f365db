"""What is the value that an UPDATE did not write, and that the log therefore does not hold?

PostgreSQL leaves a large value that did not change (TOAST) out of the log, unless the replica identity is
FULL. It is read from the table: the row's newest value, or, where the row is gone by now, none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.unchanged import Key
from headrace.model import TableName
from headrace.postgres.printing import printed
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_KEYS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Reread:
    """How rows of a table are read again by their key.

    Attributes:
        key: the columns of the key, with each one's type in SQL.
    """

    table: TableName
    key: Mapping[str, str]

    def sql(self, columns: Sequence[str]) -> str:
        """Reads `columns`; its parameters: an array of texts for each column of the key."""
        arrays = ", ".join(f"${number}::text[]" for number in range(1, len(self.key) + 1))
        names = [f"k{number}" for number in range(1, len(self.key) + 1)]
        matches = " AND ".join(
            f"t.{identifier(column)} = given.{name}::{kind}"
            for name, (column, kind) in zip(names, self.key.items(), strict=True)
        )
        read = ", ".join(printed(f"t.{identifier(column)}") for column in columns)
        return (
            f"SELECT given.place, {read} FROM unnest({arrays}) WITH ORDINALITY AS given "  # noqa: S608 (quoted)
            f"({', '.join(names)}, place) JOIN {quoted(self.table)} AS t ON {matches}"
        )

    def read(
        self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]
    ) -> dict[int, tuple[str | None, ...]]:
        """The newest texts of `columns`, by the place of a row's key in `keys`; without rows that are gone.

        Raises:
            HeadraceError: CONNECTION, PRIVILEGE, DATABASE.
        """
        found: dict[int, tuple[str | None, ...]] = {}
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            parts = [[key[number] for key in some] for number in range(len(self.key))]
            for place, *texts in session.query(self.sql(columns), parts):
                found[first + place - 1] = tuple(texts)
        return found
