"""Complete new rows with the TOAST values that the log left out, read again from the table.

PostgreSQL leaves a large value that an UPDATE did not change out of the log, unless the replica identity is
FULL; also where the log has the update as an insert, because the row comes to satisfy the publication's row
filter. The table holds the row's newest value, or none where the row was deleted since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, key_texts
from headrace.catalog.types import read_row_types
from headrace.errors import HeadraceError, retrying
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import TableName
from headrace.model.values import column_texts
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import KeptSession, ReadSession

Key = tuple[str | None, ...]
Found = dict[int, dict[str, str | None]]

_WITH_NEW_ROW = pa.array([Op.INSERT.value, Op.UPDATE.value])


def completed(
    changes: pa.RecordBatch, reread_of: Callable[[TableName], Reread | None], look: Look
) -> pa.RecordBatch:
    """Return the same changes with the values that were found; those of deleted rows stay absent.

    Args:
        changes: in `CHANGES_SCHEMA`.
        reread_of: returns how a table's rows are read again; None where they are not.
        look: as `lookups` yields it.

    Raises:
        HeadraceError: the errors of `look`.
    """
    after = changes.column("after")
    has_after = pc.is_in(changes.column("op"), value_set=_WITH_NEW_ROW).to_numpy(zero_copy_only=False)
    replaced: dict[int, list[tuple[str, str | None]]] = {}
    for table, places in by_table(changes) if has_after.any() else ():
        reread = reread_of(table)
        if reread is not None:
            rows = after if len(places) == len(after) else after.take(pa.array(places))
            # A new row that has every column needs no look: mostly that is all of them.
            short = places[has_after[places] & (_count_known(rows, reread.columns) < len(reread.columns))]
            if len(short):
                found = _read_again(changes.take(pa.array(short)), reread, look)
                replaced |= {int(short[at]): pairs for at, pairs in found.items()}
    if not replaced:
        return changes
    source = np.arange(len(after))
    source[list(replaced)] = len(after) + np.arange(len(replaced))
    both = pa.concat_arrays([after, pa.array(list(replaced.values()), after.type)])
    number = CHANGES_SCHEMA.get_field_index("after")
    return changes.set_column(number, CHANGES_SCHEMA.field(number), both.take(pa.array(source)))


def _count_known(rows: pa.MapArray, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return how many of `columns` each row has."""
    is_known = pc.is_in(rows.keys, value_set=pa.array(columns, pa.string())).to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(is_known)))
    known: npt.NDArray[np.int64] = np.diff(before[rows.offsets.to_numpy()])
    return known


def _read_again(
    changes: pa.RecordBatch, reread: Reread, look: Look
) -> dict[int, list[tuple[str, str | None]]]:
    """Return the completed new rows of one table's changes that lack values, by their index."""
    columns = column_texts(changes.column("after"), reread.columns)
    known = {name: texts.known for name, texts in columns.items()}
    missing = tuple(name for name in reread.columns if not pc.all(known[name]).as_py())
    keys = zip(*(texts.to_pylist() for texts in key_texts(changes, tuple(reread.key))), strict=True)
    # Of a key with a NULL in it no other row can be looked up.
    whole = {at: values for at, values in enumerate(keys) if None not in values}
    places = list(whole)
    rows: dict[int, list[tuple[str, str | None]]] = {}
    for place, texts in look(reread, list(whole.values()), missing).items():
        at = places[place]
        gaps = [(name, text) for name, text in texts.items() if not known[name][at].as_py()]
        rows[at] = [*changes.column("after")[at].as_py(), *gaps]
    return rows


_KEYS_AT_ONCE = 1_000
_DROPPED = ("42703", "42P01")
"""SQLSTATEs of a column and of a table that is not there."""


@dataclass(frozen=True, slots=True)
class Reread:
    """Reads rows of a table again by their key.

    Attributes:
        table: the table.
        key: the key columns and their SQL types.
        columns: the columns that a new row has.
        may_change: whether a dropped column's value is NULL; else it stays absent.
        operators: the SQL operators that compare key columns, where they are not `=`.
    """

    table: TableName
    key: Mapping[str, str]
    columns: tuple[str, ...] = ()
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

    def read(self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]) -> Found:
        """Read the newest texts of `columns`, by the key's index in `keys`; deleted rows are absent.

        It waits until the server has flushed what was read.

        Raises:
            HeadraceError: CONNECTION, PRIVILEGE, DATABASE.
        """
        try:
            return self._read(session, keys, columns)
        except HeadraceError as error:
            # What was dropped has no value to be read, and the log still names it in older rows.
            if error.sqlstate not in _DROPPED:
                raise
        return self._read_existing(session, keys, columns)

    def _read_existing(self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]) -> Found:
        """Read those of `columns` that the table still has; the others are NULL, or absent."""
        tables = read_row_types(session, [self.table])
        existing = tables[self.table].columns.keys() if self.table in tables else set()
        present = [name for name in columns if name in existing]
        dropped = dict.fromkeys(columns) if self.may_change else {}
        rows: Found = {place: {} for place in range(len(keys))}
        if present and existing >= self.key.keys():
            rows = self._read(session, keys, present)
        return {place: {**dropped, **texts} for place, texts in rows.items()}

    def _read(self, session: ReadSession, keys: Sequence[Key], columns: Sequence[str]) -> Found:
        rows: Found = {}
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            page = keys[first : first + _KEYS_AT_ONCE]
            parts = [[key[number] for key in page] for number in range(len(self.key))]
            for place, *texts in session.query(self.sql(columns), parts):
                # ORDINALITY counts from 1.
                rows[first + place - 1] = dict(zip(columns, texts, strict=True))
        # What a crash of the server would undo must not be handed on as a row's newest value.
        session.await_flush()
        return rows


Look = Callable[[Reread, Sequence[Key], Sequence[str]], Mapping[int, Mapping[str, str | None]]]
"""Looks up columns of rows by their keys: their texts by the key's index; deleted rows are absent."""


@contextlib.contextmanager
def lookups(url: str) -> Iterator[Look]:
    """Look up values of several tables over one session, which the first lookup opens.

    A lookup waits while the server cannot be reached.

    Raises:
        HeadraceError: from a lookup: AUTHENTICATION, PRIVILEGE, DATABASE.
    """
    with KeptSession(url) as session:

        def look(reread: Reread, keys: Sequence[Key], columns: Sequence[str]) -> Found:
            return retrying()(lambda: reread.read(session.get(), keys, columns))

        yield look
