"""How do document keys become document operations? The one place of this room that reads the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.assembly.forms import ReadStrategy, form_for_blocks, form_for_keys, uses_sets
from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import Member, linked_first
from headrace.assembly.statement import (
    casts_statement,
    keys_statement,
    range_keys_statement,
    range_parameters,
    range_statement,
)
from headrace.assembly.transform import transformed_operations
from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, DocumentOperation, Key, Lsn
from headrace.postgres.session import ReadSession, is_refused_row, is_refused_value
from headrace.schema.tree import IndexSpec

Refuse = Callable[[str, str, str], None]
"""Is told of a document that cannot be read: index, id and reason."""

MOST_KEYS = 1000
_FIRST_KEYS = 100
_GROWTH = 4
_CHUNK_BYTES = 16 * 1024 * 1024


class Assembler:
    """Reads the documents of one index through one session; used from one thread.

    Raises:
        HeadraceError: SCHEMA, where the spec asks for what cannot be rendered (see `plan_document`). What the
            iterators raise besides: TRANSFORM, where the user's own function fails.
    """

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        self._plan = plan_document(spec, catalog)
        self._by_keys: dict[ReadStrategy, str] = {}
        self._careful = replace(self._plan, members=linked_first(self._plan.members))
        self._bare = keys_statement(replace(self._plan, members=(), conditions=(), deletion=None))
        self._presence = keys_statement(replace(self._plan, members=()))
        self._transform = spec.transform
        self._chunk = _FIRST_KEYS

    def assemble(
        self, keys: Sequence[Key], version: Lsn, refuse: Refuse | None = None
    ) -> Iterator[DocumentOperation]:
        """The operations that bring the documents of `keys` to what the database holds now.

        An upsert for each root row that has one of the keys and is live, a delete for each id that no live
        row has; each comes when all that it was read from is on the server's disk. Memory holds one chunk: at
        most 1000 documents, fewer where documents are large.

        Args:
            keys: texts of the key's columns in key order; several texts may mean one row.
            version: what the session is known to see (decision 0015), in bytes.
            refuse: is told of each document that its rows make unreadable, which then has no operation.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; DATABASE with its id, where there is a
                document that cannot be read and no `refuse`; INTERNAL for a key of another shape.
        """
        start = 0
        while start < len(keys):
            chunk = keys[start : start + self._chunk]
            start += len(chunk)
            found = self._found(chunk, refuse)
            self._session.await_flush()
            self._adapt(sum(len(row[1] or "") for row in found), len(chunk))
            yield from self._operations(found, version)

    def absent(self, keys: Sequence[Key], version: Lsn) -> Iterator[DocumentOperation]:
        """The deletes of those documents of `keys` that no live row has; nothing else of them is read.

        Args:
            keys, version: as of `assemble`.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        for first in range(0, len(keys), MOST_KEYS):
            rows = self._present(keys[first : first + MOST_KEYS])
            self._session.await_flush()  # a delete that a crash takes back leaves the row
            gone = [(id_, None, *rest) for id_, body, *rest in rows if body is None]
            yield from self._bare_operations(gone, version)

    def assemble_range(self, part: CtidRange, version: Lsn) -> Iterator[DocumentOperation]:
        """Upserts of all live documents whose root row lies in `part`, as a stream.

        The session is busy until the iterator is exhausted or closed; so it is the caller who waits until
        what was read is on the server's disk (`ReadSession.await_flush`).

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; `is_refused_row` where a row is the
                reason, and `assemble_apart` says which.
        """
        plan = self._plan
        end = part.last_block if part.last_block is not None else plan.table.page_estimate
        form = form_for_blocks(plan, max(1, end - part.first_block))
        rows = self._streamed(range_statement(plan, part, form), range_parameters(part))
        yield from self._operations(rows, version)

    def assemble_apart(
        self, part: CtidRange, version: Lsn, refuse: Refuse | None = None
    ) -> Iterator[DocumentOperation]:
        """As `assemble_range`, where that fails for what some row holds: by keys, so that the row is found.

        Memory holds the keys of the range.

        Raises:
            HeadraceError: as `assemble`.
        """
        rows = self._session.query(range_keys_statement(self._plan, part), range_parameters(part))
        self._session.await_flush()  # also where there are none
        operations = self.assemble([tuple(row) for row in rows], version, refuse)
        yield from (one for one in operations if one.body is not None)

    def _streamed(self, statement: str, parameters: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with self._session.apart():
            yield from self._session.stream(statement, parameters)

    def _found(self, keys: Sequence[Key], refuse: Refuse | None) -> list[tuple[Any, ...]]:
        """The rows of the statement; where one makes it fail it is found by halving.

        A key that is none of its type any more can be no row's. One that a row has, but writes differently,
        still gives the id that has no document.
        """
        try:
            return self._read(keys)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
        usable = self._usable(keys)
        if len(usable) < len(keys):
            return self._found(usable, refuse) if usable else []
        if len(keys) > 1:
            middle = len(keys) // 2
            return [*self._found(keys[:middle], refuse), *self._found(keys[middle:], refuse)]
        return self._alone(keys, refuse)

    def _alone(self, keys: Sequence[Key], refuse: Refuse | None) -> list[tuple[Any, ...]]:
        """The rows of the statement for one key, which only rows of its own make fail."""
        try:
            with self._session.apart():
                return self._session.query(keys_statement(self._careful), self._columns(keys), kept=False)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
            refusal = error
        with self._session.apart():
            rows = self._session.query(self._bare, self._columns(keys))
        for id_, body, *_ in rows:
            if body is not None:
                self._refuse(id_, keys, refusal, refuse)
        return [row for row in rows if row[1] is None]

    def _refuse(self, id_: str, keys: Sequence[Key], error: HeadraceError, refuse: Refuse | None) -> None:
        self._check_statement()
        where = f"{self._place_of(keys)} of the row of {self._plan.table.name}"
        if refuse is None:
            raise HeadraceError(
                Kind.DATABASE,
                f"the document {id_!r} of index {self._plan.index} cannot be read for {where}: {error.cause}",
                'Correct the row or the schema, or set on_error = "skip" or "quarantine" for this index.',
                f"the document {id_!r} of index {self._plan.index} cannot be read for {where}: {error.told}",
            ) from error
        refuse(self._plan.index, id_, f"{where}: {error.told}")

    def _present(self, keys: Sequence[Key]) -> list[tuple[Any, ...]]:
        """As `_bare`, with a body for live rows only; where some row makes a condition fail, for all rows."""
        try:
            with self._session.apart():
                return self._session.query(self._presence, self._columns(keys))
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
        usable = self._usable(keys)
        with self._session.apart():
            return self._session.query(self._bare, self._columns(usable)) if usable else []

    def _check_statement(self) -> None:
        """What fails for no key fails for no row: a filter's value that is a label no longer.

        Raises:
            HeadraceError: DATABASE.
        """
        with self._session.apart():
            self._session.query(keys_statement(self._plan), [[] for _ in self._plan.key], kept=False)

    def _place_of(self, keys: Sequence[Key]) -> str:
        """What of the document the server fails at; of several the first one."""
        if not self._reads((), keys):
            return "a condition"
        failing = (one.key for one in self._careful.members if not self._reads((one,), keys))
        return f"the field {next(failing, '')!r}"

    def _reads(self, members: tuple[Member, ...], keys: Sequence[Key]) -> bool:
        """Whether documents of these members alone can be read."""
        statement = keys_statement(replace(self._plan, members=members))
        try:
            with self._session.apart():
                self._session.query(statement, self._columns(keys), kept=False)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
            return False
        return True

    def _usable(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Those that can be cast to the key's types; found by halving."""
        try:
            with self._session.apart():
                self._session.query(casts_statement(self._plan), self._columns(keys))
        except HeadraceError as error:
            if not is_refused_value(error):
                raise
        else:
            return keys
        if len(keys) == 1:
            return []
        middle = len(keys) // 2
        return [*self._usable(keys[:middle]), *self._usable(keys[middle:])]

    def _read(self, keys: Sequence[Key]) -> list[tuple[Any, ...]]:
        """A plan that PostgreSQL keeps for arrays of any length fits lookups only: sets are planned anew."""
        form = form_for_keys(self._plan, len(keys))
        if form not in self._by_keys:
            self._by_keys[form] = keys_statement(self._plan, form)
        kept = not uses_sets(self._plan, form)
        with self._session.apart():
            return self._session.query(self._by_keys[form], self._columns(keys), kept=kept)

    def _operations(self, rows: Iterable[tuple[Any, ...]], version: Lsn) -> Iterable[DocumentOperation]:
        found = self._bare_operations(rows, version)
        return found if self._transform is None else transformed_operations(self._transform, found)

    def _bare_operations(self, rows: Iterable[tuple[Any, ...]], version: Lsn) -> Iterator[DocumentOperation]:
        index = self._plan.index
        if self._plan.routing is None:
            return (
                DocumentOperation(index, id_, version, None if body is None else body.encode())
                for id_, body in rows
            )
        return (
            DocumentOperation(index, id_, version, None if body is None else body.encode(), routing)
            for id_, body, routing in rows
        )

    def _columns(self, keys: Sequence[Key]) -> list[list[str | None]]:
        width = len(self._plan.key)
        if any(len(key) != width or None in key for key in keys):
            raise HeadraceError(
                Kind.INTERNAL, f"index {self._plan.index} was asked for a key that is not {width} values"
            )
        return [list(part) for part in zip(*keys, strict=True)]

    def _adapt(self, size: int, documents: int) -> None:
        """Let the next chunk hold about 16 MiB at most, as far as this one tells."""
        affordable = _CHUNK_BYTES * documents // max(size, 1)
        self._chunk = max(1, min(MOST_KEYS, affordable, self._chunk * _GROWTH))
