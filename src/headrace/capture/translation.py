"""What do the messages of the log say about rows? From plugin messages to changes with positions.

A batch of messages is translated at once; between two batches this remembers the relations, the
transaction that is unfinished, and how far it has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.capture.changes import ChangeEnds, ChangeRows
from headrace.capture.offset import Offset
from headrace.capture.recognition import Recognition
from headrace.capture.relation_routing import RelationRouting
from headrace.capture.transactions import BEGIN, COMMIT, OpenTransaction, Transactions, find_transactions
from headrace.errors import HeadraceError, Retry
from headrace.model import Lsn, TableName
from headrace.pgoutput import Relation, Truncate, decode_message
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

_CHANGE_BYTES = 64
"""What a change weighs besides its message."""

_IS_COMMON = letter_set(bytes((BEGIN, COMMIT, INSERT, UPDATE, DELETE)))
_UNKNOWN, _FOREIGN = -2, -1
_RELATION_ENDS = 5  # a row's letter and its relation's oid


@dataclass(slots=True)
class _Relations:
    """The relations that a connection has described; each description has one number."""

    wanted: frozenset[TableName]
    names: RelationRouting
    known: list[Relation] = field(default_factory=list)
    numbered: dict[Relation, int] = field(default_factory=dict)
    number_of: dict[int, int] = field(default_factory=dict)
    refused: dict[int, HeadraceError] = field(default_factory=dict)

    def describe(self, relation: Relation, commit_lsn: Lsn, xid: int) -> None:
        """Take a description; one that must not be used is refused when a row needs it.

        None may: it can have come with a part of a transaction that was rolled back.
        """
        self.refused.pop(relation.oid, None)
        try:
            relation = self.names.described(relation, commit_lsn, xid)
        except HeadraceError as error:
            if error.retry is not Retry.NEVER:
                raise
            self.refused[relation.oid] = error
            return
        if self.wanted and relation.table not in self.wanted:
            self.number_of[relation.oid] = _FOREIGN
            return
        self.number_of[relation.oid] = self._numbered(relation)

    def _numbered(self, relation: Relation) -> int:
        number = self.numbered.setdefault(relation, len(self.known))
        if number == len(self.known):
            self.known.append(relation)
        return number

    def number(self, oid: int) -> int:
        """The number of the table's description; `_FOREIGN` where its changes are not wanted."""
        if oid in self.refused:
            raise self.refused[oid]
        found = self.number_of.get(oid)
        if found is None:
            raise broken(f"a change of relation {oid} came before its description")
        return found

    def truncated(self, oids: Sequence[int]) -> list[int]:
        """`number` of each, under the names that a TRUNCATE of them has; of the same name once."""
        found: dict[TableName | int, int] = {}
        names = self.names.truncated(oids)
        for oid in oids:
            number, name = self.number(oid), names.get(oid)
            if number >= 0 and name is not None and self.known[number].table != name:
                number = self._numbered(replace(self.known[number], table=name))
            found.setdefault(number if number < 0 else self.known[number].table, number)
        return list(found.values())

    def numbers(self, oids: Numbers) -> Numbers:
        """`number` of many."""
        if len(oids) and (oids == oids[0]).all():
            return np.full(len(oids), self.number(int(oids[0])), np.int64)
        distinct, places = np.unique(oids, return_inverse=True)
        return np.array([self.number(int(oid)) for oid in distinct], np.int64)[places]

    def adopt(self, oid: int, other: _Relations) -> None:
        """Take the description that another has of a table."""
        self.refused.pop(oid, None)
        if oid in other.refused:
            self.refused[oid] = other.refused[oid]
        number = other.number_of.get(oid, _UNKNOWN)
        if number >= 0:
            self.number_of[oid] = self._numbered(other.known[number])
        elif number == _FOREIGN:
            self.number_of[oid] = _FOREIGN

    def state(self) -> tuple[dict[int, int], dict[int, HeadraceError]]:
        """What holds now, for `restore`."""
        return dict(self.number_of), dict(self.refused)

    def restore(self, state: tuple[dict[int, int], dict[int, HeadraceError]]) -> None:
        """As if nothing had been described since."""
        self.number_of, self.refused = state

    def forget(self) -> None:
        self.known.clear()
        self.numbered.clear()
        self.number_of.clear()
        self.refused.clear()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The changes that are kept: the index of their message, their place, their relation's number."""

    message: Numbers
    place: Numbers
    relation: Numbers

    @classmethod
    def joined(cls, parts: list[_Chosen]) -> _Chosen:
        if len(parts) == 1:
            return parts[0]
        columns = [
            np.concatenate(column)
            for column in zip(*((p.message, p.place, p.relation) for p in parts), strict=True)
        ]
        return cls(*columns)


@dataclass(slots=True)
class Translation:
    """The state of reading one log.

    Attributes:
        resume: changes up to here are known already and skipped.
        tables: only these tables' changes are kept; all where empty.
        names: under which name each table's changes go on.
        recognition: compares what comes again with what was read.
        position: the offset right behind the last message.
    """

    resume: Offset
    tables: frozenset[TableName] = frozenset()
    names: RelationRouting = field(default_factory=RelationRouting)
    recognition: Recognition = field(default_factory=Recognition)
    position: Offset = field(init=False)
    _relations: _Relations = field(init=False)
    _apart: _Relations = field(init=False)
    _transaction: OpenTransaction | None = None

    def __post_init__(self) -> None:
        self.position = self.resume
        self._relations = _Relations(self.tables, self.names)
        self._apart = _Relations(self.tables, self.names)

    @property
    def xid(self) -> int | None:
        """The transaction that is being read, or None between two."""
        return None if self._transaction is None else self._transaction.xid

    @property
    def depth(self) -> int:
        """How many changes of the unfinished transaction were seen; a new connection sends them again."""
        return 0 if self._transaction is None else self._transaction.sequence

    def restart(self, resume: Offset) -> None:
        """Forget the connection's state: a new one sends relations and whole transactions again."""
        self.resume = self.position = resume
        self._relations.forget()
        self._transaction = None

    def take(self, batch: MessageBatch, *, apart: bool = False) -> tuple[ChangeRows, ChangeEnds]:
        """The changes that the next messages hold, and where a batch may end among them.

        Args:
            batch: the messages.
            apart: they are of a transaction that describes its relations itself: the server sent it piece
                by piece among others, whose descriptions it neither sees nor changes (but see `adopt`).

        The commit of a transaction without any change for us is no such end: PostgreSQL 14 sends every
        empty transaction, and `tables` can empty others.

        Raises:
            HeadraceError: PROTOCOL for broken bytes or an impossible order; CONTINUITY for another log than
                the one that was read; what `names` raises of a table whose rows come. Then nothing of the
                batch is taken: a shorter one can be.
        """
        if (batch.begin >= batch.end).any():
            raise broken("a message is empty")
        letters = batch.data[batch.begin]
        relations = self._apart if apart else self._relations
        if apart and self._transaction is None:
            relations.forget()
        found = find_transactions(batch, letters, self._transaction)
        self.recognition.look(found)
        known = self._is_known(found)
        state = relations.state()
        try:
            chosen = _choose(batch, letters, found, known, relations)
        except HeadraceError:
            relations.restore(state)
            raise
        chosen, described = _used(chosen, relations.known)
        rows = _rows(batch, letters, found, chosen, described)
        before, kept = self.position.lsn, self._kept(found, chosen)
        self._advance(found, known, kept)
        return rows, self._ends(rows, found, chosen, kept, before)

    def adopt(self, told: Iterable[int]) -> None:
        """Behind a transaction that was `apart`: its descriptions of these relations hold from now on."""
        for oid in told:
            self._relations.adopt(oid, self._apart)

    def _is_known(self, found: Transactions) -> Mask:
        """Which changes `resume` covers."""
        resume, commit_lsn = self.resume, found.commit_lsn[found.owner]
        if resume.transaction is None:
            return commit_lsn < resume.lsn
        inside = (commit_lsn == resume.transaction) & (found.sequence <= resume.sequence)
        known: Mask = inside | (commit_lsn < resume.transaction)
        return known

    def _kept(self, found: Transactions, chosen: _Chosen) -> Mask:
        """Whether each transaction has a change that is kept."""
        kept = np.bincount(found.owner[chosen.place], minlength=len(found.xid)) > 0
        if self._transaction is not None and self._transaction.kept:
            kept[0] = True
        return kept

    def _advance(self, found: Transactions, known: Mask, kept: Mask) -> None:
        """Remember what is unfinished, and how far we are."""
        reached = int(found.end_lsn.max(initial=0))
        if reached > self.position.lsn:
            self.position = Offset(reached)
        unfinished = found.unfinished
        if unfinished is not None:
            unfinished = replace(unfinished, kept=bool(kept[-1]))
            if (~known & (found.owner == len(found.xid) - 1)).any():
                self.position = Offset(self.position.lsn, unfinished.commit_lsn, unfinished.sequence)
        self._transaction = unfinished

    def _ends(
        self, rows: ChangeRows, found: Transactions, chosen: _Chosen, kept: Mask, before: Lsn
    ) -> ChangeEnds:
        """Behind each commit that is new and not empty for us, and behind the last change if that is none."""
        done = len(found.end_lsn)
        resumed = found.commit_lsn[:done] == (self.resume.transaction or 0)
        reached = np.maximum.accumulate(np.concatenate(([before], found.end_lsn)))[:-1]
        is_new = found.end_lsn > reached
        if (kept[:done] & ~is_new).any():
            raise broken("a transaction ends before an earlier one")
        ending = np.flatnonzero((kept[:done] | resumed) & is_new)
        weight = np.concatenate(([0], np.cumsum(rows.weight)))
        upto = np.searchsorted(chosen.message, found.commit_messages[ending])
        lsn, xid = found.end_lsn[ending], found.xid[ending]
        inside = None
        if self._transaction is not None and self._transaction.kept and len(rows):
            inside = self.position
            lsn, xid = np.append(lsn, inside.lsn), np.append(xid, self._transaction.xid)
            upto = np.append(upto, len(rows))
        return ChangeEnds(lsn, xid, weight[upto], upto, inside)


def _choose(
    batch: MessageBatch, letters: Letters, found: Transactions, known: Mask, relations: _Relations
) -> _Chosen:
    """The changes that are new and wanted; a relation holds from its description on."""
    numerals = Numerals(batch.data)
    is_row = ~known & (letters[found.changes] != TRUNCATE)
    new_truncates = set(found.changes[~known & (letters[found.changes] == TRUNCATE)].tolist())
    parts: list[_Chosen] = []
    behind = 0

    def rows_before(message: int) -> None:
        nonlocal behind
        upto = int(np.searchsorted(found.changes, message))
        places = behind + np.flatnonzero(is_row[behind:upto])
        behind = upto
        messages = found.changes[places]
        if (batch.end[messages] - batch.begin[messages] < _RELATION_ENDS).any():
            raise broken("a row ends before its relation")
        parts.append(_Chosen(messages, places, relations.numbers(numerals.uint32(batch.begin[messages] + 1))))

    for index in np.flatnonzero(~_IS_COMMON[letters]).tolist():
        message = decode_message(batch.payload(index))
        if isinstance(message, Relation):
            rows_before(index)
            relations.describe(message, *found.around(index))
        elif isinstance(message, Truncate) and index in new_truncates:
            rows_before(index)
            numbers = np.array(relations.truncated(message.relations), np.int64)
            place = np.full(len(numbers), np.searchsorted(found.changes, index))
            parts.append(_Chosen(np.full(len(numbers), index), place, numbers))
    rows_before(len(letters))
    every = _Chosen.joined(parts)
    wanted = every.relation >= 0
    return _Chosen(every.message[wanted], every.place[wanted], every.relation[wanted])


def _used(chosen: _Chosen, known: list[Relation]) -> tuple[_Chosen, tuple[Relation, ...]]:
    """The same with the descriptions that these changes have: a connection hears of many in its life."""
    is_used = np.bincount(chosen.relation, minlength=len(known)) > 0
    if is_used.all():
        return chosen, tuple(known)
    numbers = np.cumsum(is_used) - 1
    described = tuple(known[number] for number in np.flatnonzero(is_used).tolist())
    return replace(chosen, relation=numbers[chosen.relation]), described


def _rows(
    batch: MessageBatch,
    letters: Letters,
    found: Transactions,
    chosen: _Chosen,
    relations: tuple[Relation, ...],
) -> ChangeRows:
    op = letters[chosen.message]
    tupled = np.flatnonzero(op != TRUNCATE)
    messages = chosen.message[tupled]
    widths = [len(relation.columns) for relation in relations]
    part = MessageBatch(batch.data, batch.begin[messages], batch.end[messages])
    decoded = decode_rows(part, chosen.relation[tupled], widths)
    owner = found.owner[chosen.place]
    old_kind = np.zeros(len(op), np.uint8)
    old_kind[tupled] = decoded.old_kind
    return ChangeRows(
        relations=relations,
        relation=chosen.relation,
        op=op,
        commit_lsn=found.commit_lsn[owner],
        sequence=found.sequence[chosen.place],
        commit_time=found.commit_time[owner],
        xid=found.xid[owner],
        old_kind=old_kind,
        old=_spread(decoded.old, tupled, len(op)),
        new=_spread(decoded.new, tupled, len(op)),
        cells=decoded.cells,
        data=batch.data,
        weight=batch.end[chosen.message] - batch.begin[chosen.message] + _CHANGE_BYTES,
    )


def _spread(tuples: Tuples, places: Numbers, size: int) -> Tuples:
    """The same tuples where there are changes without any between them."""
    if len(places) == size:
        return tuples
    first, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    first[places], count[places] = tuples.first, tuples.count
    return Tuples(first, count)
