"""Read the first rows from a file of JSON lines or from a user's own class, instead of from the tables.

Their values are JSON. PostgreSQL itself converts them to rows of the table's type, so the results are equal
to what the log contains for the same row.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.rows import RowShape, SnapshotPlace, snapshot_changes
from headrace.datasources.envelopes import TableDescriptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import one_table
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PART_BYTES = 16 << 20
_BATCH_ROWS = 1_000
_READ_BYTES = 1 << 20

Row = Mapping[str, object]


class Bootstrap(Protocol):
    """Provider of the first rows of tables; created without arguments wherever it is needed.

    It runs in the process that plans the query, and in its tasks. The rows count as the tables' content at
    the time when the slot was created: a later change of a row wins over them.
    """

    def parts(self, tables: Sequence[str]) -> Sequence[Any]:
        """Return the parts to read, one task each; they are pickled.

        Args:
            tables: the followed tables, as SQL writes their names, without `public`.
        """

    def read(self, part: Any) -> Iterable[tuple[str, Row]]:
        """Yield the rows of one part: the table's name, and the values by column as in JSON.

        Columns that are left out are NULL.
        """


@dataclass(frozen=True, slots=True)
class _ProvidedRow:
    """One row.

    Attributes:
        at: where it begins in a file (bytes), or its number in its part.
        table: its table.
        columns: the columns that it has values for.
        text: JSON, in which the row stands under `row`.
    """

    at: int
    table: TableName
    columns: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A file that all tasks can read, with `{"table": "public.orders", "row": {"id": 1}}` on each line."""

    path: str

    def parts(self, tables: Sequence[str]) -> Sequence[tuple[int, int]]:  # noqa: ARG002 - the file names them
        """Return byte ranges of the file; a line belongs to the range in which it begins.

        Raises:
            HeadraceError: CONFIG, there is no such file.
        """
        try:
            size = Path(self.path).stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error
        return [(begin, min(begin + _PART_BYTES, size)) for begin in range(0, size, _PART_BYTES)]

    def rows(self, part: tuple[int, int]) -> Iterator[_ProvidedRow]:
        """Read the rows of a byte range.

        Raises:
            HeadraceError: VALUE with the line's number; CONFIG.
        """
        begin, end = part
        try:
            with Path(self.path).open("rb") as file:
                if begin:
                    # One byte before: a line that begins exactly at `begin` is this part's.
                    file.seek(begin - 1)
                    file.readline()
                while (at := file.tell()) < end and (line := file.readline()):
                    if line.strip():
                        yield self._parse(line, at)
        except OSError as error:
            raise self._unreadable(error) from error

    def _parse(self, line: bytes, at: int) -> _ProvidedRow:
        try:
            found = json.loads(line)
            return _ProvidedRow(at, one_table(found["table"]), frozenset(found["row"].keys()), line.decode())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = 'Write {"table": "public.orders", "row": {"id": 1}} on each line.'
            raise HeadraceError(Kind.VALUE, f"{self.place(at)} is not a row: {error}", remedy) from error

    def place(self, at: int) -> str:
        """Describe where a row is, for messages."""
        with Path(self.path).open("rb") as file:
            before = sum(
                file.read(min(_READ_BYTES, at - done)).count(b"\n") for done in range(0, at, _READ_BYTES)
            )
        return f"line {before + 1} of {self.path}"

    def _unreadable(self, error: OSError) -> HeadraceError:
        return HeadraceError(
            Kind.CONFIG,
            f"the file {self.path} of the option bootstrap cannot be read: {error.strerror}",
            "Put it where the driver and all executors see it under this name.",
        )


@dataclass(frozen=True, slots=True)
class Custom:
    """A class of the user, named `module:Class`."""

    name: str

    def parts(self, tables: Sequence[str]) -> Sequence[Any]:
        """Return the class's parts; see `Bootstrap`.

        Raises:
            HeadraceError: CONFIG, there is no such class.
        """
        return self._load().parts(tables)

    def rows(self, part: Any) -> Iterator[_ProvidedRow]:
        """Read the rows of one part.

        Raises:
            HeadraceError: VALUE, something is not a row; CONFIG.
        """
        for number, (table, row) in enumerate(self._load().read(part), 1):
            try:
                yield _ProvidedRow(number, one_table(table), frozenset(row), json.dumps({"row": dict(row)}))
            except (ValueError, TypeError) as error:
                cause = f"{self.place(number)} is not a row: {error}"
                remedy = "Give (table, values by column), as JSON has them."
                raise HeadraceError(Kind.VALUE, cause, remedy) from error

    def place(self, at: int) -> str:
        """Describe where a row is, for messages."""
        return f"row {at} of a part that {self.name} gave"

    def _load(self) -> Bootstrap:
        try:
            found: type[Bootstrap] = pkgutil.resolve_name(self.name)
        except (ImportError, AttributeError, ValueError) as error:
            raise HeadraceError(
                Kind.CONFIG,
                f"the class {self.name} of the option bootstrap cannot be loaded: {error}",
                "Put its module where the driver's and the executors' Python find it.",
            ) from error
        return found()


Provider = JsonLines | Custom


def provider(bootstrap: str) -> Provider | None:
    """Return the provider of the first rows; None where they come from the tables, or there are none."""
    if bootstrap in {"snapshot", "none"}:
        return None
    return Custom(bootstrap) if _CLASS.fullmatch(bootstrap) else JsonLines(bootstrap.removeprefix("file://"))


@dataclass
class ProvidedPart(InputPartition):
    """What one task reads from a provider.

    Attributes:
        source: the provider.
        part: one of the provider's parts.
        others: tables whose rows were read before, and are skipped.
        place: of the rows in the log.
        descriptions: of the tables whose rows are wanted.
        conditions: SQL that says which rows of a table are wanted.
    """

    source: Provider
    part: Any
    others: tuple[TableName, ...]
    place: SnapshotPlace
    descriptions: TableDescriptions
    conditions: Mapping[TableName, str]

    def read(self, url: str, shape: RowShape | None) -> Iterator[pa.RecordBatch]:
        """Read the rows; typed where there is a shape, else in `CHANGES_SCHEMA`.

        Raises:
            HeadraceError: VALUE with the row's place, where it does not fit its table; CONFIG, CONNECTION.
        """
        wanted = (row for row in self.source.rows(self.part) if row.table not in self.others)
        rows = map(self._check, wanted)
        with ReadSession(url) as session:
            # Neighbours alone are grouped: no room for all rows is needed; a mixed file gives small batches.
            for table, group in groupby(rows, lambda row: row.table):
                columns = tuple(self.descriptions.known[table].columns)
                while chunk := list(islice(group, _BATCH_ROWS)):
                    changes = snapshot_changes(
                        table, self._to_log_texts(session, table, columns, chunk), self.place
                    )
                    yield changes if shape is None else shape.rows(changes)

    def _check(self, row: _ProvidedRow) -> _ProvidedRow:
        if row.table not in self.descriptions.known:
            hint = meant(str(row.table), map(str, self.descriptions.known))
            place = self.source.place(row.at)
            raise HeadraceError(Kind.VALUE, f"{place}: {row.table} is not followed", hint)
        columns = self.descriptions.known[row.table].columns
        for unknown in sorted(row.columns - set(columns)):
            cause = f"{self.source.place(row.at)}: {row.table} has no column {unknown!r}"
            raise HeadraceError(Kind.VALUE, cause, meant(unknown, columns))
        return row

    def _to_log_texts(
        self, session: ReadSession, table: TableName, columns: Sequence[str], rows: Sequence[_ProvidedRow]
    ) -> pa.RecordBatch:
        """Convert the wanted rows to the texts that the log would contain."""
        texts = ", ".join(output_text(f"r.{identifier(name)}") for name in columns)
        # In a query of its own, with the table's name: its columns come before those of `given`.
        sql = (
            f"SELECT {texts} FROM unnest($1::text[]) WITH ORDINALITY AS given (line, place), LATERAL "  # noqa: S608 (quoted)
            f"(SELECT * FROM json_populate_record(NULL::{quoted(table)}, given.line::json -> 'row') "
            f"AS {identifier(table.name)} WHERE ((\n{self.conditions.get(table, 'true')}\n))) AS r "
            "ORDER BY given.place"
        )
        try:
            found = session.query(sql, ([row.text for row in rows],))
        except HeadraceError as error:
            if error.kind is not Kind.DATABASE:
                raise
            if len(rows) > 1:
                half = len(rows) // 2
                # Its result is not needed: the half with the bad row raises, with the row's place.
                self._to_log_texts(session, table, columns, rows[:half])
                self._to_log_texts(session, table, columns, rows[half:])
            place = self.source.place(rows[0].at)
            raise HeadraceError(
                Kind.VALUE, f"{place} is no row of {table}: {error.full_cause}", "Correct the value."
            ) from error
        arrays = [pa.array([row[at] for row in found], pa.string()) for at in range(len(columns))]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))
