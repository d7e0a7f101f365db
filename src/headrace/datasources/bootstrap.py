"""Where do the first rows come from, if not from the tables? A file of JSON lines, or a user's own class.

Their values are JSON. PostgreSQL itself makes rows of the table's type of them, so that what comes out is
what the log says of the same row.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.rows import RowShape, SnapshotPlace, snapshot_changes
from headrace.datasources.envelopes import Described
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import one_table
from headrace.postgres.printing import printed
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

SNAPSHOT, NONE = "snapshot", "none"
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PART_BYTES = 16 << 20
_ROWS_AT_ONCE = 1_000
_LOOK = 1 << 20

Row = Mapping[str, object]


class Bootstrap(Protocol):
    """What gives the first rows of tables; made without arguments wherever it is needed.

    It runs in the process that plans the query, and in its tasks. The rows are taken for what the tables held
    when the slot was made: a later change of a row wins over them.
    """

    def parts(self, tables: Sequence[str]) -> Sequence[Any]:
        """What there is to read, in parts of one task each; they are pickled.

        Args:
            tables: the tables that are followed, as SQL writes their names, `public` left out.
        """

    def read(self, part: Any) -> Iterable[tuple[str, Row]]:
        """The rows of one part: the table's name, and the values by column, as JSON has them.

        Columns that are left out are NULL.
        """


@dataclass(frozen=True, slots=True)
class _Given:
    """One row.

    Attributes:
        at: where it begins in a file (bytes), or the how manieth of its part it is.
        columns: which of its table's it has.
        text: JSON, in which the row stands under `row`.
    """

    at: int
    table: TableName
    columns: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class JsonLines:
    """`{"table": "public.orders", "row": {"id": 1}}` on each line of a file that all tasks see."""

    path: str

    def parts(self, tables: Sequence[str]) -> Sequence[tuple[int, int]]:  # noqa: ARG002 - the file says which
        """Stretches of the file (bytes); a line belongs to the one in which it begins.

        Raises:
            HeadraceError: CONFIG, there is no such file.
        """
        try:
            size = Path(self.path).stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error
        return [(begin, min(begin + _PART_BYTES, size)) for begin in range(0, size, _PART_BYTES)]

    def given(self, part: tuple[int, int]) -> Iterator[_Given]:
        """The rows of a stretch.

        Raises:
            HeadraceError: VALUE with the line's number; CONFIG.
        """
        begin, end = part
        try:
            with Path(self.path).open("rb") as file:
                if begin:
                    file.seek(begin - 1)
                    file.readline()
                while (at := file.tell()) < end and (line := file.readline()):
                    if line.strip():
                        yield self._parsed(line, at)
        except OSError as error:
            raise self._unreadable(error) from error

    def _parsed(self, line: bytes, at: int) -> _Given:
        try:
            found = json.loads(line)
            return _Given(at, one_table(found["table"]), frozenset(found["row"].keys()), line.decode())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HeadraceError(
                Kind.VALUE,
                f"{self.place(at)} is no row: {error}",
                'Write {"table": "public.orders", "row": {"id": 1}} on each line.',
            ) from error

    def place(self, at: int) -> str:
        """Where a row is, for messages."""
        with Path(self.path).open("rb") as file:
            before = sum(file.read(min(_LOOK, at - done)).count(b"\n") for done in range(0, at, _LOOK))
        return f"line {before + 1} of {self.path}"

    def _unreadable(self, error: OSError) -> HeadraceError:
        return HeadraceError(
            Kind.CONFIG,
            f"the file {self.path} of the option bootstrap cannot be read: {error.strerror}",
            "Put it where the driver and all executors see it under this name.",
        )


@dataclass(frozen=True, slots=True)
class Custom:
    """A class of the user's own, `module:Class`."""

    name: str

    def parts(self, tables: Sequence[str]) -> Sequence[Any]:
        """As the class says; see `Bootstrap`.

        Raises:
            HeadraceError: CONFIG, there is no such class.
        """
        return self._made().parts(tables)

    def given(self, part: Any) -> Iterator[_Given]:
        """The rows of one part.

        Raises:
            HeadraceError: VALUE, something is no row; CONFIG.
        """
        for number, (table, row) in enumerate(self._made().read(part), 1):
            try:
                yield _Given(number, one_table(table), frozenset(row), json.dumps({"row": dict(row)}))
            except (ValueError, TypeError) as error:
                raise HeadraceError(
                    Kind.VALUE,
                    f"{self.place(number)} is none: {error}",
                    "Give (table, values by column), as JSON has them.",
                ) from error

    def place(self, at: int) -> str:
        """Where a row is, for messages."""
        return f"row {at} of a part that {self.name} gave"

    def _made(self) -> Bootstrap:
        module, _, name = self.name.partition(":")
        try:
            made: Bootstrap = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError) as error:
            raise HeadraceError(
                Kind.CONFIG,
                f"the class {self.name} of the option bootstrap cannot be loaded: {error}",
                "Put its module where the driver's and the executors' Python find it.",
            ) from error
        return made


Provider = JsonLines | Custom


def provider(bootstrap: str) -> Provider | None:
    """Who gives the first rows; None: the tables themselves, or nobody."""
    if bootstrap in {SNAPSHOT, NONE}:
        return None
    return Custom(bootstrap) if _CLASS.fullmatch(bootstrap) else JsonLines(bootstrap.removeprefix("file://"))


@dataclass
class ProvidedPart(InputPartition):
    """What one task takes from a provider: rows of `tables`; those of `others` were read before."""

    source: Provider
    part: Any
    tables: tuple[TableName, ...]
    others: tuple[TableName, ...]
    place: SnapshotPlace
    told: Described

    def read(self, url: str, shape: RowShape | None) -> Iterator[pa.RecordBatch]:
        """The rows; typed where there is a shape, else in `CHANGES_SCHEMA`.

        Raises:
            HeadraceError: VALUE with the row's place, where it is none of its table's; CONFIG, CONNECTION.
        """
        wanted = (one for one in self.source.given(self.part) if one.table not in self.others)
        rows = map(self._checked, wanted)
        with ReadSession(url) as session:
            for table, group in groupby(rows, lambda one: one.table):
                columns = tuple(self.told.known[table].columns)
                while some := list(islice(group, _ROWS_AT_ONCE)):
                    changes = snapshot_changes(table, self._made(session, table, columns, some), self.place)
                    yield changes if shape is None else shape.rows(changes)

    def _checked(self, given: _Given) -> _Given:
        if given.table not in self.tables:
            hint = meant(str(given.table), map(str, self.tables))
            place = self.source.place(given.at)
            raise HeadraceError(Kind.VALUE, f"{place}: {given.table} is not followed", hint)
        columns = self.told.known[given.table].columns
        unknown = sorted(given.columns - set(columns))
        if unknown:
            raise HeadraceError(
                Kind.VALUE,
                f"{self.source.place(given.at)}: {given.table} has no column {unknown[0]!r}",
                meant(unknown[0], columns),
            )
        return given

    def _made(
        self, session: ReadSession, table: TableName, columns: Sequence[str], rows: Sequence[_Given]
    ) -> pa.RecordBatch:
        """The texts that the log would have of these rows."""
        texts = ", ".join(printed(f"r.{identifier(name)}") for name in columns)
        sql = (
            f"SELECT {texts} FROM unnest($1::text[]) WITH ORDINALITY AS given (line, place), "  # noqa: S608 (quoted)
            f"json_populate_record(NULL::{quoted(table)}, given.line::json -> 'row') AS r ORDER BY place"
        )
        try:
            found = session.query(sql, ([one.text for one in rows],))
        except HeadraceError as error:
            if error.kind is not Kind.DATABASE:
                raise
            if len(rows) > 1:
                half = len(rows) // 2
                self._made(session, table, columns, rows[:half])
                self._made(session, table, columns, rows[half:])
            place = self.source.place(rows[0].at)
            raise HeadraceError(
                Kind.VALUE, f"{place} is no row of {table}: {error.told}", "Correct the value."
            ) from error
        arrays = [pa.array(values, pa.string()) for values in zip(*found, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))
