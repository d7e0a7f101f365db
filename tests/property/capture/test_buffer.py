"""The buffer against a naive model: what comes in any pieces goes out once, in batches within bounds."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture import Offset
from headrace.capture.buffer import ChangeBuffer, Limit
from headrace.capture.changes import ChangeEnds
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Op
from headrace.model.lsn import KnownCommit
from headrace.model.names import TableName
from reference.columns import ChunkBuilder
from reference.translation import covers

TABLE = TableName("public", "t")
START = Offset(50)
UNBOUNDED = 1 << 40


def ends_of(*places: tuple[Offset, int, int, int]) -> ChangeEnds:
    """Create the ends from places, each (offset, xid, bytes, rows)."""
    numbers = [(offset.lsn, xid, size, rows) for offset, xid, size, rows in places]
    lsn, xids, sizes, rows = np.array(numbers, np.int64).reshape(-1, 4).T
    inside = places[-1][0] if places and places[-1][0].transaction is not None else None
    return ChangeEnds(lsn, xids, sizes, rows, inside)


@dataclass(frozen=True)
class Row:
    commit: int
    sequence: int
    size: int


class Log:
    """Transactions written to a buffer, cut into chunks after any row; `rows` is the whole truth."""

    def __init__(self, buffer: ChangeBuffer) -> None:
        self.buffer = buffer
        self.rows: list[Row] = []
        self.ends: dict[int, Offset] = {}
        self.places: list[Offset] = []
        self._position = START.lsn
        self._chunk = ChunkBuilder()
        self._ends: list[tuple[Offset, int, int, int]] = []

    def transaction(self, sizes: list[int], chunk_after: set[int]) -> None:
        commit, whole = self._position, self._position + 40
        for sequence, size in enumerate(sizes, 1):
            self._chunk.append(
                TABLE,
                Op.INSERT,
                None,
                (("a",), (b"1",)),
                commit_lsn=commit,
                sequence=sequence,
                commit_time=0,
                xid=commit,
                size=size,
            )
            self.rows.append(Row(commit, sequence, size + 64))
            if sequence in chunk_after:
                self._end(Offset(self._position, commit, sequence), commit)
                self.publish()
        self._position = whole
        self.ends[commit] = Offset(whole)
        self._end(Offset(whole), commit)

    def _end(self, offset: Offset, xid: int) -> None:
        self.places.append(offset)
        self._ends.append((offset, xid, self._chunk.bytes, len(self._chunk)))

    def publish(self) -> None:
        if self._ends or len(self._chunk):
            size = self._chunk.bytes
            self.buffer.put(self._chunk.seal(), size, ends_of(*self._ends))
            self._ends = []

    def between(self, start: Offset, end: Offset) -> list[Row]:
        return [
            row
            for row in self.rows
            if not covers(start, row.commit, row.sequence) and covers(end, row.commit, row.sequence)
        ]


def read(buffer: ChangeBuffer, start: Offset, end: Offset) -> list[tuple[int, int]]:
    table = pa.Table.from_batches(buffer.read(start, end), schema=ChunkBuilder().seal().schema)
    return list(zip(table["_commit_lsn"].to_pylist(), table["_commit_seq"].to_pylist(), strict=True))


transactions = st.lists(
    st.tuples(
        st.lists(st.integers(0, 100), min_size=1, max_size=12), st.sets(st.integers(1, 12)), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


def filled(log: list[tuple[list[int], set[int], bool]], limit: int = UNBOUNDED) -> Log:
    written = Log(ChangeBuffer(START, limit))
    for sizes, chunk_after, publish in log:
        written.transaction(sizes, chunk_after)
        if publish:
            written.publish()
    written.publish()
    return written


@given(transactions, st.integers(1, 1500), st.none() | st.integers(1, 20))
def test_batches_part_the_stream_and_stay_within_the_limit(
    log: list[tuple[list[int], set[int], bool]], limit_bytes: int, limit_rows: int | None
) -> None:
    written = filled(log)
    buffer, limit = written.buffer, Limit(limit_bytes, limit_rows)
    at, seen = START, []
    while (end := buffer.cut(at, limit)) is not None:
        assert end.order > at.order
        batch = written.between(at, end)
        assert read(buffer, at, end) == [(row.commit, row.sequence) for row in batch]
        check_end(written, at, end, limit)
        seen += batch
        at = end
        buffer.release(at)
    assert seen == written.rows
    assert at == written.ends[written.rows[-1].commit]


@given(transactions, st.integers(1, 1500), st.data())
def test_batches_end_where_they_are_told_to(
    log: list[tuple[list[int], set[int], bool]], limit_bytes: int, data: st.DataObject
) -> None:
    """What is committed later belongs to none of them, however much of it has arrived."""
    written = filled(log)
    last = data.draw(st.sampled_from([START, *written.ends.values()]))
    limit = Limit(limit_bytes, None, last.lsn)
    at = START
    while (end := written.buffer.cut(at, limit)) is not None:
        assert not written.buffer.is_empty_between(at, last.lsn)
        assert at.order < end.order <= last.order
        at = end
    assert written.buffer.is_empty_between(at, last.lsn)
    assert written.between(at, last) == []


def fits(rows: list[Row], limit: Limit) -> bool:
    return sum(row.size for row in rows) <= limit.bytes and (limit.rows is None or len(rows) <= limit.rows)


def check_end(written: Log, at: Offset, end: Offset, limit: Limit) -> None:
    """A batch ends after a commit unless its only transaction is too large; too large means one piece."""
    batch = written.between(at, end)
    if end.transaction is not None:
        assert {row.commit for row in batch} == {end.transaction}
        assert not fits(written.between(at, written.ends[end.transaction]), limit)
    if not fits(batch, limit):
        places = [mark for mark in written.places if at.order < mark.order]
        assert end == min(places, key=lambda place: place.order)
    elif end.transaction is None:
        later = [mark for mark in written.ends.values() if mark.order > end.order]
        assert not later or not fits(written.between(at, later[0]), limit)


@given(transactions, st.integers(1, 8000), st.integers(1, 1500))
def test_a_full_buffer_can_always_end_a_batch_and_be_emptied(
    log: list[tuple[list[int], set[int], bool]], buffer_bytes: int, limit_bytes: int
) -> None:
    """One writer that stops while the buffer is full, one reader: neither waits for the other for ever."""
    buffer = ChangeBuffer(START, buffer_bytes)
    written, at, seen = Log(buffer), START, []

    def drain(until: bool) -> None:
        nonlocal at
        while until or not buffer.wait_for_room(0):
            end = buffer.cut(at, Limit(limit_bytes))
            if end is None:
                assert until, "the buffer is full and no batch can end"
                return
            seen.extend(read(buffer, at, end))
            at = end
            buffer.release(at)

    for sizes, chunk_after, _ in log:
        written.transaction(sizes, chunk_after)
        written.publish()
        drain(until=False)
    drain(until=True)
    assert seen == [(row.commit, row.sequence) for row in written.rows]
    assert buffer._memory == 0
    assert not buffer._chunks


@given(transactions, st.data())
def test_any_range_between_two_places_is_read_exactly(
    log: list[tuple[list[int], set[int], bool]], data: st.DataObject
) -> None:
    """The places need not be this buffer's own: another process may have cut elsewhere."""
    written = filled(log)
    rows = st.sampled_from(written.rows)
    inside = st.builds(lambda row: Offset(row.commit, row.commit, row.sequence), rows)
    anywhere = inside | st.sampled_from([START, *written.ends.values()])
    start, end = sorted((data.draw(anywhere), data.draw(anywhere)), key=lambda offset: offset.order)
    assert written.buffer.wait_until(end, 0)
    assert read(written.buffer, start, end) == [
        (row.commit, row.sequence) for row in written.between(start, end)
    ]


def test_an_unfinished_transaction_is_not_cut_while_there_is_room() -> None:
    buffer = ChangeBuffer(START, UNBOUNDED)
    buffer.put(chunk(50, 1, 2), 100, ends_of((Offset(50, 50, 2), 9, 100, 2)))
    assert buffer.cut(START, Limit(1000)) is None
    assert not buffer.is_empty_after(START)
    assert buffer.cut(START, Limit(99)) == Offset(50, 50, 2)
    buffer.put(chunk(50, 3), 50, ends_of((Offset(90), 9, 50, 1)))
    assert buffer.cut(START, Limit(1000)) == Offset(90)
    assert set(buffer.xids(START, Offset(90)).tolist()) == {9}


def test_an_unfinished_transaction_is_cut_where_the_buffer_is_full() -> None:
    buffer = ChangeBuffer(START, 10)
    buffer.put(chunk(50, 1), 100, ends_of((Offset(50, 50, 1), 9, 100, 1)))
    assert not buffer.wait_for_room(0)
    assert buffer.cut(START, Limit(10**6)) == Offset(50, 50, 1)
    buffer.release(Offset(50, 50, 1))
    assert buffer.wait_for_room(0)


def test_a_range_that_was_asked_for_gets_room_in_a_full_buffer() -> None:
    """After a restart a range may be larger than the buffer is now; its reader must not wait for itself."""
    buffer = ChangeBuffer(START, 10)
    buffer.put(chunk(50, 1), 100, ends_of((Offset(50, 50, 1), 9, 100, 1)))
    arrived: list[bool] = []
    asking = threading.Thread(target=lambda: arrived.append(buffer.wait_until(Offset(90), 10)))
    asking.start()
    assert buffer.wait_for_room(10)
    buffer.put(chunk(50, 2), 100, ends_of((Offset(90), 9, 100, 1)))
    asking.join()
    assert arrived == [True]
    assert not buffer.wait_for_room(0)


def test_a_keepalive_stands_for_everything_before_it() -> None:
    buffer = ChangeBuffer(START, UNBOUNDED)
    assert not buffer.wait_until(Offset(70), 0)
    buffer.idle_at(70, KnownCommit(65, 3, 1))
    buffer.idle_at(60, KnownCommit(55, 2, 1))
    assert (buffer.idle, buffer.idle.last) == (Offset(70), KnownCommit(65, 3, 1))
    assert buffer.wait_until(Offset(70), 0)
    assert not buffer.wait_until(Offset(60, 65, 1), 0)
    assert buffer.is_empty_after(Offset(70))
    assert buffer.read(START, Offset(70)) == []


def test_what_the_reader_died_of_reaches_everyone_who_waits() -> None:
    buffer = ChangeBuffer(START, UNBOUNDED)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            buffer.wait_for_cut(START, Limit(1), 10)
        except HeadraceError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    cause = HeadraceError(Kind.SLOT_LOST, "gone")
    buffer.fail(cause)
    waiting.join()
    assert raised == [cause]
    with pytest.raises(HeadraceError, match="gone"):
        buffer.wait_until(Offset(70), 10)


def test_what_was_released_cannot_be_read_again() -> None:
    buffer = ChangeBuffer(START, UNBOUNDED)
    buffer.put(chunk(50, 1), 100, ends_of((Offset(90), 9, 100, 1)))
    buffer.release(Offset(90))
    assert buffer.wait_until(Offset(90), 0)
    with pytest.raises(HeadraceError, match="confirmed and gone") as raised:
        buffer.read(START, Offset(90))
    assert raised.value.kind is Kind.INTERNAL


def chunk(commit: int, *sequences: int) -> pa.RecordBatch:
    builder = ChunkBuilder()
    for sequence in sequences:
        builder.append(
            TABLE,
            Op.INSERT,
            None,
            ((), ()),
            commit_lsn=commit,
            sequence=sequence,
            commit_time=0,
            xid=9,
            size=1,
        )
    return builder.seal()
