"""Which messages of the log are trace contexts, and with which commits they are handed on."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.capture import Offset
from headrace.capture.buffer import ChangeBuffer
from headrace.capture.columns import changes_batch
from headrace.capture.streamed_transactions import Room, StreamedTransactions
from headrace.capture.trace_contexts import MOST_CONTEXTS, PREFIX, find_messages
from headrace.capture.translation import Translation
from headrace.model.names import TableName
from headrace.model.trace import CommitContext, TraceContext
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.messages import LogicalMessage, Relation, RelationColumn
from reference.encoding import batch_of, encode
from reference.pgoutput import Begin, Commit, Insert, Message

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ITEM = Relation(
    1, TableName("public", "item"), "d", (RelationColumn("id", key=True, type_oid=25, type_modifier=-1),)
)
OTHER = Relation(
    2, TableName("public", "other"), "d", (RelationColumn("id", key=True, type_oid=25, type_modifier=-1),)
)
ROW, OTHER_ROW = Insert(1, (b"1",)), Insert(2, (b"1",))


def traceparent(number: int, *, flags: str = "01") -> str:
    return f"00-{TRACE}-{number:016x}-{flags}"


def message(content: str, prefix: str = PREFIX, *, transactional: bool = True) -> LogicalMessage:
    return LogicalMessage(transactional, 5, prefix, content.encode())


def transaction(commit: int, *messages: Message) -> list[Message]:
    return [Begin(commit, 1_000 + commit, 7), *messages, Commit(commit, commit + 40, 1_000 + commit)]


def commit_context(commit: int, number: int) -> CommitContext:
    return CommitContext(commit, 1_000 + commit, TraceContext(TRACE, f"{number:016x}"))


def contexts_of(*parts: list[Message]) -> list[CommitContext]:
    translation = Translation(Offset(0), frozenset({ITEM.table}))
    return [context for part in parts for context in translation.take(batch_of(part))[1].contexts]


def test_a_context_comes_with_its_commit() -> None:
    log = [
        *transaction(100, ITEM, message(traceparent(1)), ROW),
        *transaction(200, ROW, message(traceparent(2))),
    ]
    assert contexts_of(log) == [commit_context(100, 1), commit_context(200, 2)]


def test_it_comes_when_the_commit_does_and_not_before() -> None:
    """A large transaction is cut into parts, and its documents are not complete before the last one."""
    log = transaction(100, ITEM, message(traceparent(1)), ROW, ROW)
    translation = Translation(Offset(0))
    assert [len(translation.take(batch_of([part]))[1].contexts) for part in log] == [0] * (len(log) - 1) + [1]


def test_a_new_connection_sends_it_once_more_and_it_comes_once() -> None:
    translation = Translation(Offset(0))
    first, second = transaction(100, ITEM, message(traceparent(1)), ROW), transaction(200, ROW)
    assert translation.take(batch_of(first))[1].contexts == (commit_context(100, 1),)
    translation.take(batch_of([second[0], message(traceparent(2))]))
    translation.restart(Offset(140))
    again = [*first, second[0], message(traceparent(2)), *second[1:]]
    assert translation.take(batch_of(again))[1].contexts == (commit_context(200, 2),)


@pytest.mark.parametrize(
    "ignored",
    [
        message(traceparent(1), "headrace.tracer"),
        message(traceparent(1), "headrace.trac"),
        message(traceparent(1), "headrace"),
        message(traceparent(1), "Headrace.trace"),
        message(traceparent(1), ""),
        message(traceparent(1), transactional=False),
        message(traceparent(1, flags="00")),
    ],
)
def test_other_messages_are_not_contexts(ignored: LogicalMessage) -> None:
    assert contexts_of(transaction(100, ITEM, ignored, ROW)) == []


def test_a_message_outside_of_a_transaction_is_none() -> None:
    log = [
        message("no", transactional=False),
        *transaction(100, ITEM, ROW),
        message("no", transactional=False),
    ]
    assert contexts_of(log) == []


def test_something_else_under_the_prefix_is_told_as_such() -> None:
    assert contexts_of(transaction(100, ITEM, message("nonsense \xff"), ROW)) == [
        CommitContext(100, 1_100, None)
    ]


def test_a_transaction_that_changes_no_document_has_no_context() -> None:
    log = [
        *transaction(100, message(traceparent(1))),
        *transaction(200, OTHER, message(traceparent(2)), OTHER_ROW),
    ]
    assert contexts_of(log) == []


def test_of_very_many_contexts_the_first_are_kept() -> None:
    many = [message(traceparent(number)) for number in range(1, 3 * MOST_CONTEXTS)]
    expected = [commit_context(100, number) for number in range(1, MOST_CONTEXTS + 1)]
    assert contexts_of(transaction(100, ITEM, *many, ROW)) == expected
    whole = transaction(100, ITEM, *many, ROW)
    assert contexts_of(*([part] for part in whole)) == expected


def test_the_buffer_hands_them_to_the_batch_that_their_commits_belong_to() -> None:
    translation, buffer = Translation(Offset(0)), ChangeBuffer(Offset(0), 1 << 20)
    for commit in (100, 200, 300):
        part = transaction(commit, ITEM, message(traceparent(commit)), ROW)
        rows, ends = translation.take(batch_of(part))
        buffer.put(changes_batch(rows), int(rows.weight.sum()), ends)
    assert buffer.contexts(Offset(0), Offset(140)) == [commit_context(100, 100)]
    assert buffer.contexts(Offset(140), Offset(340)) == [commit_context(200, 200), commit_context(300, 300)]
    assert buffer.contexts(Offset(140), Offset(240, transaction=300, sequence=1)) == [
        commit_context(200, 200)
    ]
    buffer.release(Offset(240))
    assert buffer.contexts(Offset(240), Offset(340)) == [commit_context(300, 300)]


def streamed(message: Message, xid: int) -> bytes:
    whole = encode(message)
    return whole[:1] + xid.to_bytes(4) + whole[1:]


def test_a_transaction_that_is_sent_while_it_runs_keeps_its_contexts() -> None:
    start, stop = b"S" + (9).to_bytes(4) + b"\1", b"E"
    commit = b"c" + (9).to_bytes(4) + encode(Commit(100, 140, 1_100))[1:]
    pieces: list[Message] = [ITEM, message(traceparent(1)), message("big" * 99, "other"), ROW]
    spooled = StreamedTransactions(Room(1 << 20))
    batch = MessageBatch.join([start, *(streamed(piece, 9) for piece in pieces), stop, commit])
    translation = Translation(Offset(0))
    found = [
        context
        for part in spooled.take(batch)
        for context in translation.take(part.messages, streamed=True)[1].contexts
    ]
    assert found == [commit_context(100, 1)]


def test_a_broken_message_is_no_context_of_ours() -> None:
    """Bytes behind the end of the last message are never read: it may end anywhere."""
    whole = encode(message(traceparent(1)))
    for size in range(1, len(whole)):
        batch = MessageBatch.join([whole[:size]])
        found = find_messages(batch, batch.data[batch.begin])
        assert len(found) == (size >= 10 + len(PREFIX) + 1)
    assert np.array_equal(find_messages(batch_of([ROW]), np.frombuffer(b"I", np.uint8)), [])
