"""Turn document keys into document operations; the only module of this room that reads the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan, Member, linked_first
from headrace.assembly.read_strategies import ReadStrategy, strategy_for_blocks, strategy_for_keys, uses_sets
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
from headrace.model.changes import DocumentOperation, Key
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange
from headrace.postgres.server_errors import is_refused_row, is_refused_value
from headrace.postgres.session import ReadSession
from headrace.schema.tree import IndexSpec

Refuse = Callable[[str, str, str], None]
"""Called for each document that cannot be read, with index, id and reason."""

_Found = TypeVar("_Found")

MAX_KEYS = 1000
_FIRST_KEYS = 100
_GROWTH = 4
_CHUNK_BYTES = 16 * 1024 * 1024


class Assembler:
    """Reads the documents of one index through one session; used from one thread.

    Raises:
        HeadraceError: SCHEMA, where the spec cannot be rendered (see `plan_document`). From the iterators
            also TRANSFORM, where the user's own function fails.
    """

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        self._plan = plan_document(spec, catalog)
        self._by_keys: dict[ReadStrategy, str] = {}
        self._careful = replace(self._plan, members=linked_first(self._plan.members))
        # Nothing of a row but its key is read, so no row can make this one fail.
        self._bare = keys_statement(replace(self._plan, members=(), conditions=(), deletion=None))
        self._presence = keys_statement(replace(self._plan, members=()))
        self._transform = spec.transform
        self._chunk = _FIRST_KEYS

    def assemble(
        self, keys: Sequence[Key], version: Lsn, refuse: Refuse | None = None
    ) -> Iterator[DocumentOperation]:
        """Yield the operations that update the documents of `keys` to what the database holds now.

        An upsert for each live root row that has one of the keys, a delete for each id that no live row has.
        Each is yielded when all that it was read from is on the server's disk. Memory holds one chunk: at
        most 1000 documents, fewer where documents are large.

        Args:
            keys: texts of the key's columns in key order; several texts may mean one row.
            version: a position that the session is known to see (decision 0015), in bytes.
            refuse: called for each document that its rows make unreadable, which then has no operation.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; DATABASE with its id, where there is a
                document that cannot be read and no `refuse`; INTERNAL for a key with another number of
                columns.
        """
        start = 0
        while start < len(keys):
            chunk = keys[start : start + self._chunk]
            start += len(chunk)
            # One statement: all parts of a document come from one snapshot.
            found = self._read_keys(chunk, refuse)
            self._session.await_flush()
            self._adapt(sum(len(row[1] or "") for row in found), len(chunk))
            yield from self._operations(found, version)

    def absent(self, keys: Sequence[Key], version: Lsn) -> Iterator[DocumentOperation]:
        """Yield the deletes of those documents of `keys` that no live row has; reads nothing else.

        Args:
            keys, version: as of `assemble`.

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session.
        """
        for first in range(0, len(keys), MAX_KEYS):
            rows = self._read_presence(keys[first : first + MAX_KEYS])
            self._session.await_flush()  # if a crash undoes the deletion, the row is still there
            deletes = [(id_, None, *rest) for id_, body, *rest in rows if body is None]
            yield from self._bare_operations(deletes, version)

    def keys(self) -> Iterator[Key]:
        """Stream the keys of all root rows; some may have no document."""
        whole = CtidRange(0, None)
        yield from self._stream(range_keys_statement(self._plan, whole), range_parameters(whole))
        self._session.await_flush()  # if a crash undoes a row's deletion, it has a document again

    def assemble_range(self, part: CtidRange, version: Lsn) -> Iterator[DocumentOperation]:
        """Stream upserts of all live documents whose root row lies in `part`.

        The session is busy until the iterator is exhausted or closed. So the caller waits until what was read
        is on the server's disk (`ReadSession.await_flush`).

        Raises:
            HeadraceError: CONNECTION or DATABASE, from the session; `is_refused_row` where a row is the
                cause: `assemble_range_by_keys` finds it.
        """
        plan = self._plan
        # The last range has no end; the estimate only chooses the strategy.
        end = part.last_block if part.last_block is not None else plan.table.page_estimate
        strategy = strategy_for_blocks(plan, max(1, end - part.first_block))
        rows = self._stream(range_statement(plan, part, strategy), range_parameters(part))
        yield from self._operations(rows, version)

    def assemble_range_by_keys(
        self, part: CtidRange, version: Lsn, refuse: Refuse | None = None
    ) -> Iterator[DocumentOperation]:
        """Assemble a range by keys where `assemble_range` fails because of a row, so that the row is found.

        Memory holds the keys of the range.

        Raises:
            HeadraceError: as `assemble`.
        """
        rows = self._session.query(range_keys_statement(self._plan, part), range_parameters(part))
        self._session.await_flush()  # also for an empty range
        operations = self.assemble([tuple(row) for row in rows], version, refuse)
        yield from (operation for operation in operations if operation.body is not None)

    def _query(
        self, statement: str, parameters: Sequence[object], *, reusable: bool = True
    ) -> list[tuple[Any, ...]]:
        # A refused row must not end a transaction that holds an exported snapshot.
        with self._session.savepoint():
            return self._session.query(statement, parameters, reusable=reusable)

    def _stream(self, statement: str, parameters: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with self._session.savepoint():
            yield from self._session.stream(statement, parameters)

    def _read_keys(self, keys: Sequence[Key], refuse: Refuse | None) -> list[tuple[Any, ...]]:
        """Read the rows of the statement; a row that makes it fail is found by halving.

        No row can have a key that cannot be cast to its type. A key that a row has, but in another spelling,
        still yields the id that has no document.
        """
        if (rows := unless_refused(lambda: self._read(keys))) is not None:
            return rows
        usable = castable_keys(self._query, self._plan, keys)
        if len(usable) < len(keys):
            return self._read_keys(usable, refuse) if usable else []
        if len(keys) > 1:
            middle = len(keys) // 2
            return [*self._read_keys(keys[:middle], refuse), *self._read_keys(keys[middle:], refuse)]
        return self._read_alone(keys, refuse)

    def _read_alone(self, keys: Sequence[Key], refuse: Refuse | None) -> list[tuple[Any, ...]]:
        """Read the rows of the statement for one key, so that only its own rows can make it fail."""
        try:
            return self._query(keys_statement(self._careful), self._columns(keys), reusable=False)
        except HeadraceError as error:
            if not is_refused_row(error):
                raise
            refusal = error
        # Without members and conditions nothing can fail: it says whether there is a row.
        rows = self._query(self._bare, self._columns(keys))
        for id_, body, *_ in rows:
            if body is not None:
                self._refuse(id_, keys, refusal, refuse)
        return [row for row in rows if row[1] is None]

    def _refuse(self, id_: str, keys: Sequence[Key], error: HeadraceError, refuse: Refuse | None) -> None:
        self._check_statement()
        where = f"{self._failing_field(keys)} of the row of {self._plan.table.name}"
        if refuse is None:
            what = f"the document {id_!r} of index {self._plan.index} cannot be read for {where}"
            raise HeadraceError(
                Kind.DATABASE,
                f"{what}: {error.cause}",
                'Correct the row or the schema, or set on_error = "quarantine" or "skip" for this index.',
                f"{what}: {error.full_cause}",
            ) from error
        refuse(self._plan.index, id_, f"{where}: {error.full_cause}")

    def _read_presence(self, keys: Sequence[Key]) -> list[tuple[Any, ...]]:
        """Read as `_bare`, but with a body for live rows only.

        Where a row makes a condition fail, all rows have a body.
        """
        columns = self._columns(keys)
        if (rows := unless_refused(lambda: self._query(self._presence, columns))) is not None:
            return rows
        usable = castable_keys(self._query, self._plan, keys)
        return self._query(self._bare, self._columns(usable)) if usable else []

    def _check_statement(self) -> None:
        """Run the statement without keys: if that fails, no row is the cause.

        The cause may be a filter's value that is not a label of its type any more.

        Raises:
            HeadraceError: DATABASE.
        """
        self._query(keys_statement(self._plan), [[] for _ in self._plan.key], reusable=False)

    def _failing_field(self, keys: Sequence[Key]) -> str:
        """Name the first part of the document at which the server fails."""
        if not self._is_readable((), keys):
            return "a condition"
        # One after the other: the server's message does not name the field.
        failing = (member.key for member in self._careful.members if not self._is_readable((member,), keys))
        return f"the field {next(failing, '')!r}"

    def _is_readable(self, members: tuple[Member, ...], keys: Sequence[Key]) -> bool:
        """Return whether documents of these members alone can be read."""
        statement, columns = keys_statement(replace(self._plan, members=members)), self._columns(keys)
        return unless_refused(lambda: self._query(statement, columns, reusable=False)) is not None

    def _read(self, keys: Sequence[Key]) -> list[tuple[Any, ...]]:
        """Read with a generic plan for lookups only: sets are planned again for each number of keys."""
        strategy = strategy_for_keys(self._plan, len(keys))
        if strategy not in self._by_keys:
            self._by_keys[strategy] = keys_statement(self._plan, strategy)
        # A generic plan of sets would be made for no number of keys in particular.
        reusable = not uses_sets(self._plan, strategy)
        return self._query(self._by_keys[strategy], self._columns(keys), reusable=reusable)

    def _operations(self, rows: Iterable[tuple[Any, ...]], version: Lsn) -> Iterable[DocumentOperation]:
        found = self._bare_operations(rows, version)
        return found if self._transform is None else transformed_operations(self._transform, found)

    def _bare_operations(self, rows: Iterable[tuple[Any, ...]], version: Lsn) -> Iterator[DocumentOperation]:
        # Where a column decides on the routing, a row has it at its end.
        for id_, body, *routing in rows:
            encoded = None if body is None else body.encode()
            yield DocumentOperation(self._plan.index, id_, version, encoded, *routing)

    def _columns(self, keys: Sequence[Key]) -> list[list[str | None]]:
        width = len(self._plan.key)
        # A NULL in a key would match no row, and make a delete of an id that nobody has.
        if any(len(key) != width or None in key for key in keys):
            raise HeadraceError(
                Kind.INTERNAL, f"index {self._plan.index} was asked for a key that is not {width} values"
            )
        return [list(part) for part in zip(*keys, strict=True)]

    def _adapt(self, size: int, documents: int) -> None:
        """Let the next chunk hold at most about 16 MiB, judging by this one."""
        # Sizes of neighbouring documents are alike; one chunk may still be larger than wished.
        affordable = _CHUNK_BYTES * documents // max(size, 1)
        self._chunk = max(1, min(MAX_KEYS, affordable, self._chunk * _GROWTH))


def castable_keys(
    query: Callable[[str, Sequence[object]], object], plan: DocumentPlan, keys: Sequence[Key]
) -> Sequence[Key]:
    """Return the keys that can be cast to the key's types; found by halving.

    Args:
        query: runs a statement with its parameters.
    """
    statement = casts_statement(plan)

    def cast(part: Sequence[Key]) -> Sequence[Key]:
        query(statement, [list(column) for column in zip(*part, strict=True)])
        return part

    return by_halves(cast, keys, is_refused_value)


def unless_refused(read: Callable[[], _Found]) -> _Found | None:
    """Return what `read` finds; None where the content of some row makes it fail."""
    try:
        return read()
    except HeadraceError as error:
        if not is_refused_row(error):
            raise
        return None


def by_halves(
    read: Callable[[Sequence[Key]], Sequence[_Found]],
    keys: Sequence[Key],
    is_refused: Callable[[HeadraceError], bool],
) -> Sequence[_Found]:
    """Return what `read` finds for these keys, without those of which one alone is refused."""
    try:
        return read(keys)
    except HeadraceError as error:
        if not is_refused(error):
            raise
    if len(keys) == 1:
        return []
    middle = len(keys) // 2
    return [*by_halves(read, keys[:middle], is_refused), *by_halves(read, keys[middle:], is_refused)]
