"""Show the documents of one index as they would be now, without slot, publication or sink."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest

from headrace.assembly.assembler import Assembler
from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import first_statement, range_parameters, sample_keys_statement
from headrace.assembly.transform import transformed_operations
from headrace.catalog import Catalog, read_catalog
from headrace.catalog.binding import bind, complete
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.model.changes import DocumentOperation, Key, keys_of_ids
from headrace.model.names import CtidRange
from headrace.postgres.server_errors import is_refused_row
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec
from headrace.snapshot.planning import plan_tables

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""Begins the transaction in which all documents of a preview are read."""
_PLACES = 20
"""The most places of the root table from which a sample takes rows."""
_ROWS_AT_PLACE = 4
_SECONDS_TO_CHOOSE = 2.0
_SAMPLE_KEYS = 20
"""Documents that a sample reads at once, between two looks at its limits."""


@dataclass(frozen=True, slots=True)
class PreviewedDocument:
    """A document as the database gives it now.

    Attributes:
        id: its id.
        body: its JSON; None where no live row has this id.
        seconds: how long it took to assemble.
    """

    id: str
    body: bytes | None
    seconds: float


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """What a sample may take: documents, bytes of JSON, and about so many seconds."""

    documents: int = 200
    bytes: int = 32 << 20
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class DocumentSample:
    """Documents from rows that are spread over the root table.

    Attributes:
        bodies: their JSON.
        unreadable: how many further documents its rows make unreadable.
        cut_short: whether the bytes or the time ran out before the documents did.
    """

    bodies: tuple[bytes, ...]
    unreadable: int = 0
    cut_short: bool = False


class Preview:
    """The documents of one index, through a session in one snapshot of the database.

    Args:
        catalog: the tables that the schema reads.

    Attributes:
        session: a session in a transaction.
        spec: the schema, completed from the catalog.
    """

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self.session = session
        self.spec = spec
        self._plan = plan_document(spec, catalog)
        self._assembler = Assembler(session, spec, catalog)

    def document(self, id_: str) -> PreviewedDocument:
        """Assemble one document; an id that no row can have has none."""
        began = time.perf_counter()
        operations = self._assembler.assemble(list(keys_of_ids([id_], len(self.spec.primary_key))), 0)
        # A key may have another spelling, as `01`: that document has another id.
        body = next((operation.body for operation in operations if operation.id == id_), None)
        return PreviewedDocument(id_, body, time.perf_counter() - began)

    def first(self, count: int) -> list[PreviewedDocument]:
        """Assemble the first documents by key, without those that a transform leaves out."""
        began = time.perf_counter()
        rows = self.session.query(first_statement(self._plan), (count,))
        operations = [DocumentOperation(self.spec.name, id_, 0, body.encode()) for id_, body in rows]
        if self.spec.transform is not None:
            # A transform may leave out documents, so there may be fewer than were read.
            operations = list(transformed_operations(self.spec.transform, operations))
        seconds_each = (time.perf_counter() - began) / max(len(rows), 1)
        return [
            PreviewedDocument(operation.id, operation.body, seconds_each)
            for operation in operations
            if operation.body is not None
        ]

    def any(self) -> PreviewedDocument | None:
        """Assemble the document of some live row, another one each time; None where there is no row."""
        began = time.perf_counter()
        keys = self._spread_keys(_SAMPLE_KEYS, time.monotonic() + _SECONDS_TO_CHOOSE)
        # Who asks for another document must not get the same one again.
        random.shuffle(keys)
        for key in keys:
            for operation in self._assembler.assemble([key], 0):
                if operation.body is not None:
                    return PreviewedDocument(operation.id, operation.body, time.perf_counter() - began)
        return None

    def sample(self, limits: SampleLimits) -> DocumentSample:
        """Assemble documents of rows that are spread over the table; the transaction ends with it.

        Raises:
            HeadraceError: CONNECTION, DATABASE; TRANSFORM, where the user's own function fails.
        """
        bodies: list[bytes] = []
        unreadable: list[tuple[str, ...]] = []
        end, is_cut = time.monotonic() + limits.seconds, False
        # At least 1: a timeout of 0 is none.
        self.session.query(f"SET LOCAL statement_timeout = {max(1, round(limits.seconds * 1000))}")
        try:
            keys = self._spread_keys(limits.documents, end)
            for first in range(0, len(keys), _SAMPLE_KEYS):
                if is_cut := sum(map(len, bodies)) >= limits.bytes or time.monotonic() >= end:
                    break
                chunk = keys[first : first + _SAMPLE_KEYS]
                operations = self._assembler.assemble(chunk, 0, lambda *refused: unreadable.append(refused))
                bodies += [operation.body for operation in operations if operation.body is not None]
        except HeadraceError as error:
            if error.kind is not Kind.CONNECTION or self.session.closed:
                raise
            is_cut = True  # by its statement_timeout
        return DocumentSample(tuple(bodies), len(unreadable), is_cut)

    def _spread_keys(self, count: int, end: float) -> list[Key]:
        """Return keys of live rows from places all over the root table, in turns; fewer at the time `end`."""
        places = max(1, min(_PLACES, count // _ROWS_AT_PLACE))
        parts = plan_tables(self.session, [self.spec.table], count=places)[self.spec.table]
        share = -(-count // max(1, len(parts)))
        found: list[list[Key]] = []
        for planned in parts:
            keys: list[Key] = []
            for part in planned.ranges:
                if len(keys) < share and time.monotonic() < end:
                    keys += self._first_keys(part, share - len(keys))
            found.append(keys)
        # In turns: a sample that is cut short is still one of the whole table.
        return [key for key in chain.from_iterable(zip_longest(*found)) if key is not None][:count]

    def _first_keys(self, part: CtidRange, count: int) -> list[Key]:
        """Return keys of live rows; of any rows where one of them makes a condition fail."""
        live, any_ = (sample_keys_statement(self._plan, part, count, live=live) for live in (True, False))
        try:
            # A row on which a condition fails would end the transaction, and with it the snapshot.
            with self.session.savepoint():
                return self.session.query(live, range_parameters(part))
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
        return self.session.query(any_, range_parameters(part))


def read_complete(session: ReadSession, declared: IndexSpec) -> tuple[IndexSpec, Catalog]:
    """Read the tables of an index; return its schema, completed from them, and the tables.

    Raises:
        ErrorGroup: everything that the schema names and the database does not have.
    """
    catalog = read_catalog(session, declared.tables())
    if errors := bind(declared, catalog):
        raise ErrorGroup(errors)
    return complete(declared, catalog), catalog


@contextmanager
def open_preview(database: str, declared: IndexSpec) -> Iterator[Preview]:
    """Open a preview of an index; everything that is read until it is left comes from one snapshot.

    Args:
        database: the database's address.
        declared: the schema of the index.

    Raises:
        HeadraceError: CONNECTION, DATABASE; everything that the schema names and the database does not have.
    """
    with ReadSession(database) as session:
        spec, catalog = read_complete(session, declared)
        preview = Preview(session, spec, catalog)
        session.query(BEGIN)
        yield preview
