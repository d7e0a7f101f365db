"""Translate pgoutput messages to changes with positions.

A batch of messages is translated at once. Between two batches `Translation` remembers the relations, the
unfinished transaction, and the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.capture.changes import ChangeEnds, ChangeRows
from headrace.capture.offset import Offset
from headrace.capture.recognition import Recognition
from headrace.capture.relation_routing import RelationRouting
from headrace.capture.trace_contexts import MESSAGE, MOST_CONTEXTS, find_contexts
from headrace.capture.transactions import BEGIN, COMMIT, OpenTransaction, Transactions, find_transactions
from headrace.errors import HeadraceError, Retry
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.trace import CommitContext
from headrace.pgoutput.batch import MessageBatch, Numbers
from headrace.pgoutput.columnar import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    Letters,
    Mask,
    Numerals,
    Tuples,
    decode_rows,
    letter_set,
)
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.messages import Relation, Truncate

_CHANGE_BYTES = 64
"""The weight of a change besides its message (bytes)."""

# Types and origins tell nothing that is needed; descriptions and truncates are rare, and decoded one by one.
_IS_PASSED_OVER = letter_set(bytes((BEGIN, COMMIT, INSERT, UPDATE, DELETE, MESSAGE)) + b"YO")
_HAS_OLD_ROW = letter_set(bytes((UPDATE, DELETE)))
_UNKNOWN, _FOREIGN = -2, -1
_RELATION_ENDS = 5  # a row's letter and its relation's oid


@dataclass(slots=True)
class _Relations:
    """The relations that a connection has described; each distinct description has a number."""

    wanted: frozenset[TableName]
    routing: RelationRouting
    known: list[Relation] = field(default_factory=list)
    numbered: dict[Relation, int] = field(default_factory=dict)
    number_of: dict[int, int] = field(default_factory=dict)
    refused: dict[int, HeadraceError] = field(default_factory=dict)
    without_old_rows: dict[int, HeadraceError] = field(default_factory=dict)
    """The errors for UPDATE and DELETE, by the number of a relation whose old rows lack a needed column."""

    def describe(self, relation: Relation, commit_lsn: Lsn, xid: int) -> None:
        """Take a relation's description; one that must not be used raises its error when a row needs it.

        No row may need it: it can have come with a part of a transaction that was rolled back.
        """
        # A later description replaces an earlier one, also one that was refused.
        self.refused.pop(relation.oid, None)
        try:
            relation = self.routing.route(relation, commit_lsn, xid)
        except HeadraceError as error:
            if error.retry is not Retry.NEVER:
                raise
            self.refused[relation.oid] = error
            return
        if self.wanted and relation.table not in self.wanted:
            # Its rows are skipped without a look at their columns, which nobody has checked.
            self.number_of[relation.oid] = _FOREIGN
            return
        self.number_of[relation.oid] = number = self._assign_number(relation)
        if (refusal := self.routing.old_row_error(relation, commit_lsn)) is not None:
            self.without_old_rows[number] = refusal

    def _assign_number(self, relation: Relation) -> int:
        number = self.numbered.setdefault(relation, len(self.known))
        if number == len(self.known):
            self.known.append(relation)
        return number

    def number(self, oid: int) -> int:
        """Return the number of the relation's description; `_FOREIGN` where its changes are not wanted."""
        if oid in self.refused:
            raise self.refused[oid]
        number = self.number_of.get(oid)
        if number is None:
            # The server describes a relation once for each connection, before its first row.
            raise broken(f"a change of relation {oid} came before its description")
        return number

    def truncate_numbers(self, oids: Sequence[int]) -> list[int]:
        """Return the numbers for a TRUNCATE of relations, under its own names; each name once."""
        # TRUNCATE of a partitioned table names each leaf; they all are one table here, and count once.
        numbers: dict[TableName | int, int] = {}
        names = self.routing.truncate_names(oids)
        for oid in oids:
            number, name = self.number(oid), names.get(oid)
            if number >= 0 and name is not None and self.known[number].table != name:
                number = self._assign_number(replace(self.known[number], table=name))
            numbers.setdefault(number if number < 0 else self.known[number].table, number)
        return list(numbers.values())

    def numbers(self, oids: Numbers) -> Numbers:
        """Return the number of each relation in an array of oids."""
        # The usual case by far: a bulk load of one table.
        if len(oids) and (oids == oids[0]).all():
            return np.full(len(oids), self.number(int(oids[0])), np.int64)
        distinct, places = np.unique(oids, return_inverse=True)
        return np.array([self.number(int(oid)) for oid in distinct], np.int64)[places]

    def adopt(self, oid: int, other: _Relations) -> None:
        """Take over the description that `other` has of a relation."""
        self.refused.pop(oid, None)
        if oid in other.refused:
            self.refused[oid] = other.refused[oid]
        number = other.number_of.get(oid, _UNKNOWN)
        # What is not known here is described again before its first row.
        if number >= 0:
            self.number_of[oid] = own = self._assign_number(other.known[number])
            if number in other.without_old_rows:
                self.without_old_rows[own] = other.without_old_rows[number]
        elif number == _FOREIGN:
            self.number_of[oid] = _FOREIGN

    def check_old_rows(self, numbers: Numbers) -> None:
        """Raise an error where an UPDATE or DELETE of one of these relations must not be used."""
        for number in self.without_old_rows.keys() & set(numbers.tolist()) if self.without_old_rows else ():
            raise self.without_old_rows[number]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The kept changes: index of the message, index among the batch's changes, number of the relation."""

    message: Numbers
    place: Numbers
    relation: Numbers

    @classmethod
    def join(cls, parts: list[_Chosen]) -> _Chosen:
        if len(parts) == 1:
            return parts[0]
        columns = [
            np.concatenate(column)
            for column in zip(*((p.message, p.place, p.relation) for p in parts), strict=True)
        ]
        return cls(*columns)


@dataclass(slots=True)
class Translation:
    """Translates the messages of one log, batch by batch.

    Attributes:
        resume: changes up to this offset were read before and are skipped.
        tables: the tables whose changes are kept; empty: all.
        routing: maps relations to the tables that their changes are reported under.
        recognition: compares transactions that are sent again with those that were read.
        position: the offset right after the last message.
    """

    resume: Offset
    tables: frozenset[TableName] = frozenset()
    routing: RelationRouting = field(default_factory=RelationRouting)
    recognition: Recognition = field(default_factory=Recognition)
    position: Offset = field(init=False)
    _relations: _Relations = field(init=False)
    _streamed: _Relations = field(init=False)
    _transaction: OpenTransaction | None = None
    _contexts: tuple[CommitContext, ...] = ()

    def __post_init__(self) -> None:
        self.position = self.resume
        self._relations = _Relations(self.tables, self.routing)
        self._streamed = _Relations(self.tables, self.routing)

    @property
    def xid(self) -> int | None:
        """The id of the transaction that is being read; None between two."""
        return None if self._transaction is None else self._transaction.xid

    @property
    def depth(self) -> int:
        """The number of changes read of the unfinished transaction; a new connection sends them again."""
        return 0 if self._transaction is None else self._transaction.sequence

    def restart(self, resume: Offset) -> None:
        """Forget the connection's state: a new connection sends relations and whole transactions again."""
        self.resume = self.position = resume
        self._relations = _Relations(self.tables, self.routing)
        self._transaction = None
        self._contexts = ()

    def take(self, batch: MessageBatch, *, streamed: bool = False) -> tuple[ChangeRows, ChangeEnds]:
        """Translate the next messages to changes, and return also where a batch may end among them.

        The commit of a transaction without kept changes is no such end: PostgreSQL 14 sends every empty
        transaction, and `tables` can empty others.

        Args:
            batch: the messages.
            streamed: whether they are of a transaction that the server sent in pieces among others. It
                describes its relations itself; descriptions outside of it are separate (but see `adopt`).

        Raises:
            HeadraceError: PROTOCOL for broken bytes or an impossible order; OTHER_LOG for another log than
                the one that was read; the errors of `routing` for a table whose rows come. Then nothing of
                the batch is taken, and a shorter batch can be.
        """
        if (batch.begin >= batch.end).any():
            raise broken("a message is empty")
        letters = batch.data[batch.begin]
        # The server keeps track of what it has described apart for each streamed transaction.
        if streamed and self._transaction is None:
            self._streamed = _Relations(self.tables, self.routing)
        relations = self._streamed if streamed else self._relations
        transactions = find_transactions(batch, letters, self._transaction)
        # Before anything is taken: rows of another log must not reach the buffer.
        self.recognition.look(transactions)
        known = self._is_known(transactions)
        found = (*self._contexts, *find_contexts(batch, letters, transactions))
        # Where a row fails, nothing of the batch counts, and a shorter batch describes its relations again.
        described_before = dict(relations.number_of), dict(relations.refused)
        try:
            chosen = _choose(batch, letters, transactions, known, relations)
        except HeadraceError:
            relations.number_of, relations.refused = described_before
            raise
        chosen, described = _drop_unused(chosen, relations.known)
        rows = _rows(batch, letters, transactions, chosen, described)
        before, kept = self.position.lsn, self._kept(transactions, chosen)
        self._advance(transactions, known, kept)
        ends = self._ends(rows, transactions, chosen, kept, before)
        return rows, replace(ends, contexts=self._ended(found, transactions, kept)) if found else ends

    def adopt(self, described: Iterable[int]) -> None:
        """Use a streamed transaction's descriptions of these relations (oids) from now on."""
        for oid in described:
            self._relations.adopt(oid, self._streamed)

    def _is_known(self, transactions: Transactions) -> Mask:
        """Return which changes `resume` covers."""
        resume, commit_lsn = self.resume, transactions.commit_lsn[transactions.owner]
        if resume.transaction is None:
            # A commit record begins before the position that follows it: `<` is right, and `<=` would skip
            # a commit that begins there.
            return commit_lsn < resume.lsn
        inside = (commit_lsn == resume.transaction) & (transactions.sequence <= resume.sequence)
        known: Mask = inside | (commit_lsn < resume.transaction)
        return known

    def _kept(self, transactions: Transactions, chosen: _Chosen) -> Mask:
        """Return whether each transaction has a kept change."""
        kept = np.bincount(transactions.owner[chosen.place], minlength=len(transactions.xid)) > 0
        if self._transaction is not None and self._transaction.kept:
            # The first transaction of this batch is the one that was open; it had a kept change before.
            kept[0] = True
        return kept

    def _advance(self, transactions: Transactions, known: Mask, kept: Mask) -> None:
        """Remember the unfinished transaction and the position."""
        reached = int(transactions.end_lsn.max(initial=0))
        # The slot may send what was read before; the position never goes back.
        if reached > self.position.lsn:
            self.position = Offset(reached)
        unfinished = transactions.unfinished
        if unfinished is not None:
            unfinished = replace(unfinished, kept=bool(kept[-1]))
            if (~known & (transactions.owner == len(transactions.xid) - 1)).any():
                self.position = Offset(self.position.lsn, unfinished.commit_lsn, unfinished.sequence)
        self._transaction = unfinished

    def _ended(
        self, found: tuple[CommitContext, ...], transactions: Transactions, kept: Mask
    ) -> tuple[CommitContext, ...]:
        """Return the contexts of new commits with kept changes; remember those of the open transaction."""
        done = transactions.commit_lsn[: len(transactions.end_lsn)][kept[: len(transactions.end_lsn)]]
        ended = frozenset(done[done >= self.resume.lsn].tolist())
        # An application may emit any number of contexts in one transaction: the memory for them is bounded.
        unfinished = None if self._transaction is None else self._transaction.commit_lsn
        self._contexts = tuple(c for c in found if c.commit_lsn == unfinished)[:MOST_CONTEXTS]
        return tuple(context for context in found if context.commit_lsn in ended)[:MOST_CONTEXTS]

    def _ends(
        self, rows: ChangeRows, transactions: Transactions, chosen: _Chosen, kept: Mask, before: Lsn
    ) -> ChangeEnds:
        """Return the ends of batches: new commits with kept changes, and the last change if none follows."""
        done = len(transactions.end_lsn)
        resumed = transactions.commit_lsn[:done] == (self.resume.transaction or 0)
        reached = np.maximum.accumulate(np.concatenate(([before], transactions.end_lsn)))[:-1]
        is_new = transactions.end_lsn > reached
        # Commits come in the order of their ends. Else offsets would not tell what was read.
        if (kept[:done] & ~is_new).any():
            raise broken("a transaction ends before an earlier one")
        # A batch that ended inside a transaction goes on to its commit, even if nothing more of it is kept.
        ending = np.flatnonzero((kept[:done] | resumed) & is_new)
        weight = np.concatenate(([0], np.cumsum(rows.weight)))
        upto = np.searchsorted(chosen.message, transactions.commit_messages[ending])
        lsn, xid = transactions.end_lsn[ending], transactions.xid[ending]
        inside = None
        if self._transaction is not None and self._transaction.kept and len(rows):
            inside = self.position
            lsn, xid = np.append(lsn, inside.lsn), np.append(xid, self._transaction.xid)
            upto = np.append(upto, len(rows))
        return ChangeEnds(lsn, xid, weight[upto], upto, inside)


def _choose(
    batch: MessageBatch, letters: Letters, transactions: Transactions, known: Mask, relations: _Relations
) -> _Chosen:
    """Choose the changes that are new and wanted; a description applies to the rows after it."""
    numerals = Numerals(batch.data)
    is_row = ~known & (letters[transactions.changes] != TRUNCATE)
    new_truncates = set(transactions.changes[~known & (letters[transactions.changes] == TRUNCATE)].tolist())
    parts: list[_Chosen] = []
    begin = 0

    def rows_before(message: int) -> None:
        nonlocal begin
        upto = int(np.searchsorted(transactions.changes, message))
        places = begin + np.flatnonzero(is_row[begin:upto])
        begin = upto
        messages = transactions.changes[places]
        if (batch.end[messages] - batch.begin[messages] < _RELATION_ENDS).any():
            raise broken("a row ends before its relation")
        parts.append(_Chosen(messages, places, relations.numbers(numerals.uint32(batch.begin[messages] + 1))))

    for index in np.flatnonzero(~_IS_PASSED_OVER[letters]).tolist():
        message = decode_message(batch.payload(index))
        if isinstance(message, Relation):
            rows_before(index)
            relations.describe(message, *transactions.around(index))
        elif isinstance(message, Truncate) and index in new_truncates:
            rows_before(index)
            numbers = np.array(relations.truncate_numbers(message.relations), np.int64)
            place = np.full(len(numbers), np.searchsorted(transactions.changes, index))
            parts.append(_Chosen(np.full(len(numbers), index), place, numbers))
    rows_before(len(letters))
    chosen = _Chosen.join(parts)
    wanted = chosen.relation >= 0
    # Only now it is known whether an UPDATE or DELETE needs the old row.
    relations.check_old_rows(chosen.relation[_HAS_OLD_ROW[letters[chosen.message]]])
    return _Chosen(chosen.message[wanted], chosen.place[wanted], chosen.relation[wanted])


def _drop_unused(chosen: _Chosen, known: list[Relation]) -> tuple[_Chosen, tuple[Relation, ...]]:
    """Renumber the relations so that only the used ones remain; a connection describes many over time."""
    is_used = np.bincount(chosen.relation, minlength=len(known)) > 0
    if is_used.all():
        return chosen, tuple(known)
    numbers = np.cumsum(is_used) - 1
    described = tuple(known[number] for number in np.flatnonzero(is_used).tolist())
    return replace(chosen, relation=numbers[chosen.relation]), described


def _rows(
    batch: MessageBatch,
    letters: Letters,
    transactions: Transactions,
    chosen: _Chosen,
    relations: tuple[Relation, ...],
) -> ChangeRows:
    op = letters[chosen.message]
    tupled = np.flatnonzero(op != TRUNCATE)
    messages = chosen.message[tupled]
    widths = [len(relation.columns) for relation in relations]
    part = MessageBatch(batch.data, batch.begin[messages], batch.end[messages])
    decoded = decode_rows(part, chosen.relation[tupled], widths)
    owner = transactions.owner[chosen.place]
    old_kind = np.zeros(len(op), np.uint8)
    old_kind[tupled] = decoded.old_kind
    return ChangeRows(
        relations=relations,
        relation=chosen.relation,
        op=op,
        commit_lsn=transactions.commit_lsn[owner],
        sequence=transactions.sequence[chosen.place],
        commit_time=transactions.commit_time[owner],
        xid=transactions.xid[owner],
        old_kind=old_kind,
        old=_spread(decoded.old, tupled, len(op)),
        new=_spread(decoded.new, tupled, len(op)),
        cells=decoded.cells,
        data=batch.data,
        weight=batch.end[chosen.message] - batch.begin[chosen.message] + _CHANGE_BYTES,
    )


def _spread(tuples: Tuples, places: Numbers, size: int) -> Tuples:
    """Spread tuples over `size` changes, of which those at `places` have one."""
    if len(places) == size:
        return tuples
    first, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    first[places], count[places] = tuples.first, tuples.count
    return Tuples(first, count)
