"""The slow, obvious translation of the log: message by message, value by value.

What `headrace.capture.translation` does to many messages at once is compared with this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from headrace.capture.offset import Offset
from headrace.model.changes import Op
from headrace.model.names import TableName
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.messages import Relation, Truncate
from reference.columns import Cells, ChunkBuilder
from reference.pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Message, Row, Update


def covers(offset: Offset, commit_lsn: int, sequence: int) -> bool:
    """Whether the change at (commit record, sequence) lies at or before an offset."""
    if offset.transaction is None:
        return commit_lsn < offset.lsn
    return (commit_lsn, sequence) <= (offset.transaction, offset.sequence)


@dataclass(slots=True)
class _Transaction:
    begin: Begin
    sequence: int = 0
    kept: bool = False


@dataclass(slots=True)
class Translation:
    """The state of reading one log, and the changes that it has put into `chunk`.

    Attributes:
        resume: changes up to here are known already and skipped.
        tables: only these tables' changes are kept; all where empty.
        position: the offset right after the last message.
    """

    resume: Offset
    tables: frozenset[TableName] = frozenset()
    chunk: ChunkBuilder = field(default_factory=ChunkBuilder)
    position: Offset = field(init=False)
    _relations: dict[int, Relation] = field(default_factory=dict)
    _transaction: _Transaction | None = None

    def __post_init__(self) -> None:
        self.position = self.resume

    @property
    def xid(self) -> int | None:
        """The transaction that is being read, or None between two."""
        return None if self._transaction is None else self._transaction.begin.xid

    @property
    def cut(self) -> int | None:
        """The xid of the transaction inside which `position` stands and from which `chunk` has rows."""
        transaction = self._transaction
        return transaction.begin.xid if transaction is not None and transaction.kept else None

    def restart(self, resume: Offset) -> None:
        """Forget the connection's state: a new one sends relations and whole transactions again."""
        self.resume = self.position = resume
        self._relations.clear()
        self._transaction = None

    def take(self, message: Message, size: int) -> int | None:
        """Take the next message, `size` bytes long; a Commit returns its transaction's xid.

        The Commit of a transaction without any change for us returns None, so that it ends no batch:
        PostgreSQL 14 sends every empty transaction, and `tables` can empty others.

        Raises:
            HeadraceError: PROTOCOL for an impossible order.
        """
        match message:
            case Begin():
                if self._transaction is not None:
                    raise broken("a transaction begins inside another")
                if message.commit_lsn >= 1 << 63 or abs(message.commit_time) > 1 << 62:
                    raise broken("a transaction has an impossible position or time")
                self._transaction = _Transaction(message)
            case Commit():
                return self._commit(message)
            case Relation():
                self._relation(message)
            case Insert() | Update() | Delete() | Truncate():
                self._row(message, size)
            case _:
                pass
        return None

    def _commit(self, commit: Commit) -> int | None:
        transaction = self._open()
        if commit.commit_lsn != transaction.begin.commit_lsn or commit.end_lsn < commit.commit_lsn:
            raise broken("a transaction ends that did not begin")
        self._transaction = None
        if commit.end_lsn <= self.position.lsn:
            if transaction.kept:
                raise broken("a transaction ends before an earlier one")
            return None
        self.position = Offset(commit.end_lsn)
        resumed = self.resume.transaction == transaction.begin.commit_lsn
        return transaction.begin.xid if transaction.kept or resumed else None

    def _open(self) -> _Transaction:
        if self._transaction is None:
            raise broken("a change stands outside a transaction")
        return self._transaction

    def _relation(self, relation: Relation) -> None:
        self._relations[relation.oid] = relation

    def _row(self, message: Insert | Update | Delete | Truncate, size: int) -> None:
        transaction = self._open()
        transaction.sequence += 1
        commit_lsn, sequence = transaction.begin.commit_lsn, transaction.sequence
        if covers(self.resume, commit_lsn, sequence):
            return
        oids = message.relations if isinstance(message, Truncate) else (message.relation,)
        for oid in oids:
            relation = self._relations.get(oid)
            if relation is None:
                raise broken(f"a change of relation {oid} came before its description")
            if not self.tables or relation.table in self.tables:
                op, before, after = _sides(message, relation)
                transaction.kept = True
                self.chunk.append(
                    relation.table,
                    op,
                    before,
                    after,
                    commit_lsn=commit_lsn,
                    sequence=sequence,
                    commit_time=transaction.begin.commit_time,
                    xid=transaction.begin.xid,
                    size=size,
                    identity=_identity(relation),
                )
        self.position = Offset(self.position.lsn, commit_lsn, sequence)


def _identity(relation: Relation) -> list[str] | None:
    """The columns whose old values tell rows apart; None where the log has all of them."""
    if relation.replica_identity == "f":
        return None
    return [column.name for column in relation.columns if column.key]


def _sides(
    message: Insert | Update | Delete | Truncate, relation: Relation
) -> tuple[Op, Cells | None, Cells | None]:
    match message:
        case Insert():
            return Op.INSERT, None, _cells(message.new, relation)
        case Update():
            before = None
            if message.old is not None:
                before = _cells(message.old, relation, key_only=message.old_is_key)
            return Op.UPDATE, before, _cells(message.new, relation, message.old)
        case Delete():
            return Op.DELETE, _cells(message.old, relation, key_only=message.old_is_key), None
        case Truncate():
            return Op.TRUNCATE, None, None


def _cells(row: Row, relation: Relation, old: Row | None = None, *, key_only: bool = False) -> Cells:
    """Names and values of a row; an unchanged value comes from `old`, or is left out where unknown."""
    if len(row) != len(relation.columns):
        raise broken(f"a row of {relation.table} has {len(row)} of {len(relation.columns)} columns")
    if not key_only and UNCHANGED not in row:
        return relation.names, cast("tuple[bytes | None, ...]", row)
    names: list[str] = []
    values: list[bytes | None] = []
    for position, (column, value) in enumerate(zip(relation.columns, row, strict=True)):
        if key_only and not column.key:
            continue
        known = value
        if known is UNCHANGED and old is not None and (column.key or old[position] is not None):
            known = old[position]
        if known is not UNCHANGED:
            names.append(column.name)
            values.append(known)
    return names, values
