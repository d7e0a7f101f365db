"""Messages become changes with positions; what is known already, or not ours, is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.capture import Offset
from headrace.capture.columns import changes_batch
from headrace.capture.relation_routing import RelationRouting
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Op
from headrace.model.names import TableName
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.messages import LogicalMessage, Relation, RelationColumn, Truncate
from reference.encoding import batch_of
from reference.pgoutput import UNCHANGED, Begin, Binary, Commit, Delete, Insert, Message, Origin, Type, Update
from support.changes import Change, decode_changes

USERS, LINES = TableName("public", "users"), TableName("Shop", "Lines")
PEOPLE = TableName("public", "people")


def column(name: str, *, key: bool = False) -> RelationColumn:
    return RelationColumn(name, key, 25, -1)


def users(*, full: bool = False) -> Relation:
    columns = (column("id", key=True), column("name", key=full), column("bio", key=full))
    return Relation(1, USERS, "f" if full else "d", columns)


def lines() -> Relation:
    return Relation(2, LINES, "d", (column("b", key=True), column("a", key=True), column("n")))


def insert(oid: int = 1, *values: bytes | None) -> Insert:
    return Insert(oid, values or (b"1", b"n", b"b"))


def transaction(commit: int, *messages: Message, xid: int = 7) -> list[Message]:
    return [Begin(commit, 1_000, xid), *messages, Commit(commit, commit + 40, 1_000)]


class Reader:
    """A translation and everything that came out of it."""

    def __init__(self, translation: Translation, *, together: bool) -> None:
        self.translation = translation
        self.changes: list[Change] = []
        self.ends: list[tuple[Offset, int]] = []
        self._together = together

    def feed(self, *messages: Message) -> None:
        """Take the messages, in one batch or each in its own."""
        for part in [list(messages)] if self._together else [[message] for message in messages]:
            rows, ends = self.translation.take(batch_of(part))
            self.changes += decode_changes(changes_batch(rows))
            self.ends += [(ends.offset(index), int(ends.xid[index])) for index in range(len(ends))]

    @property
    def position(self) -> Offset:
        return self.translation.position

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(change.commit_lsn, change.commit_seq) for change in self.changes]

    @property
    def commits(self) -> list[int]:
        """The transactions behind which a batch may end."""
        return [xid for offset, xid in self.ends if offset.transaction is None]


@pytest.fixture(params=[True, False], ids=["together", "one by one"])
def read(request: pytest.FixtureRequest) -> Callable[..., Reader]:
    """A reader from an offset on; `tables` as for the translation."""

    def make(resume: Offset = Offset(0), **given: Any) -> Reader:  # noqa: B008
        return Reader(Translation(resume, **given), together=request.param)

    return make


Read = Callable[..., Reader]


def test_a_transaction_moves_the_position_to_its_end(read: Read) -> None:
    reader = read(Offset(100))
    begin, relation, row, commit = transaction(200, users(), insert())
    reader.feed(begin, relation, row)
    assert (reader.position, reader.translation.xid) == (Offset(100, 200, 1), 7)
    assert reader.ends[-1:] == [(Offset(100, 200, 1), 7)]
    reader.feed(commit)
    assert (reader.position, reader.translation.xid) == (Offset(240), None)
    assert reader.ends[-1:] == [(Offset(240), 7)]
    assert reader.changes == [Change(USERS, Op.INSERT, None, {"id": "1", "name": "n", "bio": "b"}, 200, 1)]


def test_every_change_counts_and_other_messages_do_not(read: Read) -> None:
    others: list[Message] = [
        Origin(1, "x"),
        Type(9, "public", "mood"),
        LogicalMessage(transactional=True, lsn=1, prefix="p", content=b""),
    ]
    reader = read()
    delete = Delete(1, (b"1",) * 3, old_is_key=True)
    reader.feed(*transaction(200, users(), insert(), *others, insert(), delete))
    assert reader.places == [(200, 1), (200, 2), (200, 3)]


def test_a_resume_inside_a_transaction_skips_what_is_known(read: Read) -> None:
    reader = read(Offset(100, 200, 2))
    begin, relation, *rows, commit = transaction(200, users(), insert(), insert(), insert())
    reader.feed(begin, relation, *rows[:2])
    assert (reader.position, reader.ends) == (Offset(100, 200, 2), [])
    reader.feed(rows[2], commit)
    assert reader.commits == [7]
    reader.feed(*transaction(300, insert()))
    assert reader.places == [(200, 3), (300, 1)]


def test_a_resume_at_the_last_change_still_ends_the_transaction(read: Read) -> None:
    reader = read(Offset(100, 200, 1))
    reader.feed(*transaction(200, users(), insert()))
    assert reader.ends == [(Offset(240), 7)]
    assert reader.position == Offset(240)
    assert reader.changes == []


def test_a_transaction_that_is_known_whole_is_skipped_and_moves_nothing(read: Read) -> None:
    reader = read(Offset(500))
    reader.feed(*transaction(200, users(), insert()))
    assert (reader.ends, reader.position, reader.changes) == ([], Offset(500), [])


def test_a_new_connection_sends_the_transaction_again_and_nothing_comes_twice(read: Read) -> None:
    reader = read(Offset(100))
    messages = transaction(200, users(), insert(), insert(), insert())
    reader.feed(*messages[:4])
    reader.translation.restart(reader.position)
    reader.feed(*messages[:3])
    assert reader.position == Offset(100, 200, 2)
    reader.translation.restart(reader.position)
    reader.feed(*messages)
    assert reader.places == [(200, 1), (200, 2), (200, 3)]


def test_a_new_connection_must_describe_relations_again(read: Read) -> None:
    reader = read(Offset(100))
    reader.feed(*transaction(200, users(), insert()))
    reader.translation.restart(reader.position)
    with pytest.raises(HeadraceError, match="before its description") as raised:
        reader.feed(*transaction(300, insert()))
    assert raised.value.kind is Kind.PROTOCOL


def test_a_description_holds_for_the_rows_behind_it(read: Read) -> None:
    wider = Relation(1, USERS, "d", (*users().columns, column("age")))
    reader = read()
    reader.feed(
        *transaction(200, users(), insert(), wider, insert(1, b"2", b"n", b"b", b"9"), users(), insert())
    )
    assert [list(change.after or {}) for change in reader.changes] == [
        ["id", "name", "bio"],
        ["id", "name", "bio", "age"],
        ["id", "name", "bio"],
    ]


def test_other_tables_are_left_out_but_counted(read: Read) -> None:
    reader = read(tables=frozenset({LINES}))
    reader.feed(*transaction(200, users(), insert(), lines(), insert(2, b"1", b"2", b"3"), insert()))
    assert [(c.table, c.commit_seq) for c in reader.changes] == [(LINES, 2)]


def test_a_transaction_without_our_changes_ends_no_batch(read: Read) -> None:
    reader = read(tables=frozenset({LINES}))
    reader.feed(*transaction(200, users(), insert()))
    reader.feed(*transaction(300))
    assert reader.ends == []
    assert reader.position == Offset(340)


def test_an_unchanged_value_comes_from_the_old_row_of_a_full_identity(read: Read) -> None:
    reader = read()
    update = Update(1, (b"1", b"old", b"long"), old_is_key=False, new=(b"1", None, UNCHANGED))
    reader.feed(*transaction(200, users(full=True), update))
    [change] = reader.changes
    assert change.before == {"id": "1", "name": "old", "bio": "long"}
    assert change.after == {"id": "1", "name": None, "bio": "long"}


def test_a_null_before_an_unchanged_value_is_no_contradiction_under_full(read: Read) -> None:
    reader = read()
    update = Update(1, (b"1", b"old", None), old_is_key=False, new=(b"1", b"new", UNCHANGED))
    reader.feed(*transaction(200, users(full=True), update))
    [change] = reader.changes
    assert change.after == {"id": "1", "name": "new", "bio": None}


@pytest.mark.parametrize("old", [None, (b"0", None, None)])
def test_an_unchanged_value_that_nothing_carries_is_absent(
    read: Read, old: tuple[bytes | None, ...] | None
) -> None:
    reader = read()
    update = Update(1, old, old_is_key=old is not None, new=(b"1", b"new", UNCHANGED))
    reader.feed(*transaction(200, users(), update))
    [change] = reader.changes
    assert change.before == (None if old is None else {"id": "0"})
    assert change.after == {"id": "1", "name": "new"}


def test_a_key_tuple_shows_its_key_columns_only(read: Read) -> None:
    reader = read()
    reader.feed(*transaction(200, lines(), Delete(2, (b"x", b"y", None), old_is_key=True)))
    [change] = reader.changes
    assert (change.before, change.after) == ({"b": "x", "a": "y"}, None)


def test_a_truncate_is_one_change_for_each_of_our_tables(read: Read) -> None:
    truncate = Truncate((1, 2), cascade=True, restart_identity=False)
    both = read()
    both.feed(*transaction(200, users(), lines(), insert(), truncate, insert()))
    assert [(c.table, c.op, c.commit_seq) for c in both.changes] == [
        (USERS, Op.INSERT, 1),
        (USERS, Op.TRUNCATE, 2),
        (LINES, Op.TRUNCATE, 2),
        (USERS, Op.INSERT, 3),
    ]
    one = read(tables=frozenset({LINES}))
    one.feed(*transaction(200, users(), lines(), truncate))
    assert [c.table for c in one.changes] == [LINES]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Begin(1, 0, 1), Begin(2, 0, 2)], "begins inside another"),
        ([Commit(1, 2, 0)], "outside a transaction"),
        ([Begin(1, 0, 1), Commit(2, 3, 0)], "did not begin"),
        ([users(), insert()], "outside a transaction"),
        (transaction(9, insert(5)), "relation 5 came before"),
        (transaction(9, Truncate((5,), cascade=False, restart_identity=False)), "relation 5 came before"),
        (transaction(9, users(), insert(1, b"1")), "number of columns"),
        (
            transaction(9, users(), Update(1, (b"1",), old_is_key=True, new=(b"1", b"2", UNCHANGED))),
            "number of columns",
        ),
        (transaction(9, users(), insert(1, b"1", b"2", Binary(b"3"))), "binary"),
    ],
)
def test_an_impossible_order_is_refused(read: Read, messages: list[Message], said: str) -> None:
    with pytest.raises(HeadraceError, match=said) as raised:
        read().feed(*messages)
    assert raised.value.kind is Kind.PROTOCOL


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(HeadraceError, match="empty"):
        Translation(Offset(0)).take(MessageBatch.join([b""]))


class RootOfUsers(RelationRouting):
    """`users` is a leaf of `people`."""

    def route(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        assert (commit_lsn, xid) == (200, 7)
        return replace(relation, table=PEOPLE) if relation.table == USERS else relation

    def truncate_names(self, oids: Sequence[int]) -> dict[int, TableName]:
        return {1: USERS} if 3 not in oids and 1 in oids else {}


def test_rows_of_a_leaf_go_on_under_its_root_and_its_truncate_under_its_own_name(read: Read) -> None:
    """A truncated leaf is no truncated root: the rows of the others are still there."""
    reader = read(routing=RootOfUsers())
    truncate = Truncate((1, 2), cascade=False, restart_identity=False)
    reader.feed(*transaction(200, users(), lines(), insert(), truncate, insert(), truncate))
    tables = [change.table for change in reader.changes]
    assert tables == [PEOPLE, USERS, LINES, PEOPLE, USERS, LINES]
    reader = read(routing=RootOfUsers(), tables=frozenset({PEOPLE}))
    reader.feed(*transaction(200, users(), lines(), insert(), truncate))
    assert [change.table for change in reader.changes] == [PEOPLE, USERS]


def test_all_leaves_that_are_truncated_together_are_one_truncated_root(read: Read) -> None:
    reader = read(routing=RootOfUsers())
    other = Relation(3, PEOPLE, "d", users().columns)
    truncate = Truncate((1, 2, 3), cascade=False, restart_identity=False)
    reader.feed(*transaction(200, users(), lines(), other, truncate))
    assert [(change.table, change.op) for change in reader.changes] == [
        (PEOPLE, Op.TRUNCATE),
        (LINES, Op.TRUNCATE),
    ]


class RefusedUsers(RelationRouting):
    """`users` may not be used as it is."""

    def route(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        if relation == users():
            raise HeadraceError(Kind.SCHEMA_CHANGED, f"{commit_lsn} {xid}")
        return relation


def test_a_description_is_refused_when_a_row_needs_it(read: Read) -> None:
    """One that no row needs may be of a part of a transaction that was rolled back."""
    shorter = replace(users(), columns=users().columns[:2])
    reader = read(routing=RefusedUsers())
    reader.feed(*transaction(200, users(), lines(), insert(2), shorter, insert(1, b"1", b"n")))
    assert [change.table for change in reader.changes] == [LINES, USERS]
    with pytest.raises(HeadraceError, match="300 7"):
        reader.feed(*transaction(300, users(), insert()))


def test_descriptions_that_come_again_and_again_take_no_more_memory(read: Read) -> None:
    """Streamed transactions, truncated leaves and alterations describe tables as long as a stream lives."""
    translation = read(routing=RootOfUsers()).translation
    truncate = Truncate((1,), cascade=False, restart_identity=False)
    for number in range(20):
        altered = replace(users(), columns=users().columns[: 2 + number % 2])
        messages = transaction(200, altered, lines(), truncate, insert(2))
        translation.position = translation.resume = Offset(0)
        rows, _ = translation.take(batch_of(messages), streamed=bool(number % 3))
        translation.adopt([1, 2])
        assert len(rows.relations) == 2
        assert len(rows) == 2
    assert len(translation._relations.known) <= 5
