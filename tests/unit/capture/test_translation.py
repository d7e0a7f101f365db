"""Messages become changes with positions; what is known already, or not ours, is left out."""

from __future__ import annotations

import pytest

from headrace.capture import Offset
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Kind
from headrace.model import Op, TableName, decode_changes
from headrace.model.changes import Change
from headrace.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Update,
)

USERS, LINES = TableName("public", "users"), TableName("Shop", "Lines")


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


def feed(translation: Translation, *messages: Message) -> list[int | None]:
    return [translation.take(message, 10) for message in messages]


def changes(translation: Translation) -> list[Change]:
    return list(decode_changes(translation.chunk.seal()))


def places(translation: Translation) -> list[tuple[int, int]]:
    return [(change.commit_lsn, change.commit_seq) for change in changes(translation)]


def test_a_transaction_moves_the_position_to_its_end() -> None:
    translation = Translation(Offset(100))
    begin, relation, row, commit = transaction(200, users(), insert())
    assert feed(translation, begin, relation, row) == [None, None, None]
    assert (translation.position, translation.xid, translation.cut) == (Offset(100, 200, 1), 7, 7)
    assert feed(translation, commit) == [7]
    assert (translation.position, translation.xid, translation.cut) == (Offset(240), None, None)
    [change] = changes(translation)
    assert change == Change(USERS, Op.INSERT, None, {"id": "1", "name": "n", "bio": "b"}, 200, 1)


def test_every_change_counts_and_other_messages_do_not() -> None:
    translation = Translation(Offset(0))
    others: list[Message] = [
        Origin(1, "x"),
        Type(9, "public", "mood"),
        LogicalMessage(transactional=True, lsn=1, prefix="p", content=b""),
    ]
    feed(translation, *transaction(200, users(), insert(), *others, insert(), Delete(1, (b"1",) * 3, True)))  # noqa: FBT003
    assert places(translation) == [(200, 1), (200, 2), (200, 3)]


def test_a_resume_inside_a_transaction_skips_what_is_known() -> None:
    translation = Translation(Offset(100, 200, 2))
    begin, relation, *rows, commit = transaction(200, users(), insert(), insert(), insert())
    feed(translation, begin, relation, *rows[:2])
    assert (translation.position, translation.cut) == (Offset(100, 200, 2), None)
    assert feed(translation, rows[2], commit) == [None, 7]
    feed(translation, *transaction(300, insert()))
    assert places(translation) == [(200, 3), (300, 1)]


def test_a_resume_at_the_last_change_still_ends_the_transaction() -> None:
    translation = Translation(Offset(100, 200, 1))
    assert feed(translation, *transaction(200, users(), insert()))[-1] == 7
    assert translation.position == Offset(240)
    assert changes(translation) == []


def test_a_transaction_that_is_known_whole_is_skipped_and_moves_nothing() -> None:
    translation = Translation(Offset(500))
    assert feed(translation, *transaction(200, users(), insert())) == [None] * 4
    assert translation.position == Offset(500)
    assert changes(translation) == []


def test_a_new_connection_sends_the_transaction_again_and_nothing_comes_twice() -> None:
    translation = Translation(Offset(100))
    messages = transaction(200, users(), insert(), insert(), insert())
    feed(translation, *messages[:4])
    translation.restart(translation.position)
    feed(translation, *messages[:3])
    assert translation.position == Offset(100, 200, 2)
    translation.restart(translation.position)
    feed(translation, *messages)
    assert places(translation) == [(200, 1), (200, 2), (200, 3)]


def test_a_new_connection_must_describe_relations_again() -> None:
    translation = Translation(Offset(100))
    feed(translation, *transaction(200, users(), insert()))
    translation.restart(translation.position)
    with pytest.raises(HeadraceError, match="before its description") as raised:
        feed(translation, *transaction(300, insert()))
    assert raised.value.kind is Kind.PROTOCOL


def test_other_tables_are_left_out_but_counted() -> None:
    translation = Translation(Offset(0), tables=frozenset({LINES}))
    feed(translation, *transaction(200, users(), insert(), lines(), insert(2, b"1", b"2", b"3"), insert()))
    assert [(c.table, c.commit_seq) for c in changes(translation)] == [(LINES, 2)]


def test_a_transaction_without_our_changes_ends_no_batch() -> None:
    translation = Translation(Offset(0), tables=frozenset({LINES}))
    assert feed(translation, *transaction(200, users(), insert()))[-1] is None
    assert feed(translation, *transaction(300))[-1] is None
    assert translation.position == Offset(340)


def test_an_unchanged_value_comes_from_the_old_row_of_a_full_identity() -> None:
    translation = Translation(Offset(0))
    update = Update(1, (b"1", b"old", b"long"), old_is_key=False, new=(b"1", None, UNCHANGED))
    feed(translation, *transaction(200, users(full=True), update))
    [change] = changes(translation)
    assert change.before == {"id": "1", "name": "old", "bio": "long"}
    assert change.after == {"id": "1", "name": None, "bio": "long"}


def test_a_null_before_an_unchanged_value_is_no_contradiction_under_full() -> None:
    translation = Translation(Offset(0))
    update = Update(1, (b"1", b"old", None), old_is_key=False, new=(b"1", b"new", UNCHANGED))
    feed(translation, *transaction(200, users(full=True), update))
    [change] = changes(translation)
    assert change.after == {"id": "1", "name": "new", "bio": None}


@pytest.mark.parametrize("old", [None, (b"0", None, None)])
def test_an_unchanged_value_that_nothing_carries_is_absent(old: tuple[bytes | None, ...] | None) -> None:
    translation = Translation(Offset(0))
    update = Update(1, old, old_is_key=old is not None, new=(b"1", b"new", UNCHANGED))
    feed(translation, *transaction(200, users(), update))
    [change] = changes(translation)
    assert change.before == (None if old is None else {"id": "0"})
    assert change.after == {"id": "1", "name": "new"}


def test_a_key_tuple_shows_its_key_columns_only() -> None:
    translation = Translation(Offset(0))
    delete = Delete(2, (b"x", b"y", None), old_is_key=True)
    feed(translation, *transaction(200, lines(), delete))
    [change] = changes(translation)
    assert (change.before, change.after) == ({"b": "x", "a": "y"}, None)


def test_a_truncate_is_one_change_for_each_of_our_tables() -> None:
    truncate = Truncate((1, 2), cascade=True, restart_identity=False)
    both = Translation(Offset(0))
    feed(both, *transaction(200, users(), lines(), truncate))
    assert [(c.table, c.op, c.commit_seq) for c in changes(both)] == [
        (USERS, Op.TRUNCATE, 1),
        (LINES, Op.TRUNCATE, 1),
    ]
    one = Translation(Offset(0), tables=frozenset({LINES}))
    feed(one, *transaction(200, users(), lines(), truncate))
    assert [c.table for c in changes(one)] == [LINES]


def test_an_identity_that_carries_too_little_stops_before_its_rows() -> None:
    needed = {USERS: frozenset({"id", "name"})}
    with pytest.raises(HeadraceError, match=r"table users .* value of name") as raised:
        feed(Translation(Offset(0), needed=needed), *transaction(200, users(), insert()))
    assert raised.value.kind is Kind.REPLICA_IDENTITY
    assert feed(Translation(Offset(0), needed=needed), *transaction(200, users(full=True), insert()))[-1] == 7


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Begin(1, 0, 1), Begin(2, 0, 2)], "begins inside another"),
        ([Commit(1, 2, 0)], "outside a transaction"),
        ([users(), insert()], "outside a transaction"),
        (transaction(9, insert(5)), "relation 5 came before"),
        (transaction(9, Truncate((5,), cascade=False, restart_identity=False)), "relation 5 came before"),
        (transaction(9, users(), insert(1, b"1")), "1 of 3 columns"),
        (
            transaction(9, users(), Update(1, (b"1",), old_is_key=True, new=(b"1", b"2", UNCHANGED))),
            "1 of 3 columns",
        ),
    ],
)
def test_an_impossible_order_is_refused(messages: list[Message], said: str) -> None:
    with pytest.raises(HeadraceError, match=said) as raised:
        feed(Translation(Offset(0)), *messages)
    assert raised.value.kind is Kind.PROTOCOL
