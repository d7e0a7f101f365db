"""A transaction that came in pieces, among others, is what it would have been behind its end."""

from __future__ import annotations

import struct
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture import Offset
from headrace.capture.columns import changes_batch
from headrace.capture.streamed_transactions import Room, Spool, SpoolFullError, StreamedTransactions
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import LogicalMessage, Relation, RelationColumn, Truncate
from reference.encoding import encode
from reference.pgoutput import Begin, Commit, Insert, Message, Type

TABLES = [TableName("public", "users"), TableName("Shop", "Lines")]
ROOM = 1 << 30


Op = tuple[int, int, str]
"""(sub)transaction, table, what."""


@dataclass
class Work:
    """One transaction: what it does, in which (sub)transaction, and what was told of it so far."""

    xid: int
    todo: list[Op]
    aborted: set[int]
    commits: bool
    streamed: bool
    done: list[tuple[int, int, str, int]] = field(default_factory=list)
    is_begun: bool = False


def shape(table: int, version: int) -> Relation:
    """Each version has another number of columns, so that a wrong one shows."""
    width = (table + version) % 4
    columns = tuple(
        RelationColumn(f"c{version}_{c}", key=True, type_oid=25, type_modifier=-1) for c in range(width)
    )
    return Relation(table, TABLES[table], "f", columns)


def message(table: int, what: str, version: int) -> Message:
    match what:
        case "insert":
            return Insert(table, (b"x",) * len(shape(table, version).columns))
        case "truncate":
            return Truncate((table,), cascade=False, restart_identity=False)
        case "type":
            return Type(9, "public", "mood")
        case _:
            return LogicalMessage(transactional=True, lsn=1, prefix="p", content=b"x")


@st.composite
def works(draw: st.DrawFn, xid: int) -> Work:
    streamed = draw(st.booleans())
    owners = st.integers(xid, xid + 2) if streamed else st.just(xid)
    whats = st.sampled_from(["insert", "insert", "insert", "truncate", "type", "message"])
    todo = draw(st.lists(st.tuples(owners, st.integers(0, len(TABLES) - 1), whats), max_size=8))
    aborted = draw(st.sets(st.sampled_from([xid + 1, xid + 2]))) if streamed else set()
    return Work(xid, todo, aborted, commits=not streamed or draw(st.booleans()), streamed=streamed)


@dataclass
class Server:
    """What the server remembers of what it has told: each table's shape, to whom it was described."""

    version: list[int] = field(default_factory=lambda: [0] * len(TABLES))
    told: list[bool] = field(default_factory=lambda: [False] * len(TABLES))
    told_in: list[set[int]] = field(default_factory=lambda: [set() for _ in TABLES])
    sent: list[bytes] = field(default_factory=list)

    def alter(self, table: int) -> None:
        self.version[table] += 1
        self.told[table], self.told_in[table] = False, set()

    def piece(self, work: Work, size: int) -> None:
        self.sent.append(start(work.xid, first=not work.is_begun))
        work.is_begun = True
        for owner, table, what in work.todo[:size]:
            if work.xid not in self.told_in[table]:
                self.told_in[table].add(work.xid)
                self.sent.append(with_xid(shape(table, self.version[table]), owner))
            self.sent.append(with_xid(message(table, what, self.version[table]), owner))
            work.done.append((owner, table, what, self.version[table]))
        del work.todo[:size]
        self.sent.append(stop())

    def end(self, work: Work, lsn: int) -> None:
        self.sent += [abort(work.xid, subxid) for subxid in work.aborted]
        for table, told_in in enumerate(self.told_in):
            if work.xid in told_in:
                told_in.discard(work.xid)
                self.told[table] |= work.commits
        self.sent.append(stream_commit(work.xid, lsn) if work.commits else abort(work.xid, work.xid))

    def whole(self, work: Work, lsn: int) -> None:
        self.sent.append(encode(Begin(lsn, 1_000, work.xid)))
        for owner, table, what in work.todo:
            if not self.told[table]:
                self.told[table] = True
                self.sent.append(encode(shape(table, self.version[table])))
            self.sent.append(encode(message(table, what, self.version[table])))
            work.done.append((owner, table, what, self.version[table]))
        self.sent.append(encode(Commit(lsn, lsn + 40, 1_000)))


def with_xid(message: Message, xid: int) -> bytes:
    payload = encode(message)
    return payload[:1] + struct.pack(">I", xid) + payload[1:]


def start(xid: int, *, first: bool) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def stop() -> bytes:
    return b"E"


def abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def stream_commit(xid: int, lsn: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, lsn + 40, 1_000 - POSTGRES_EPOCH_US)


def plainly(work: Work, lsn: int) -> list[bytes]:
    """All that is left of the transaction; each row after its table's description."""
    messages: list[Message] = [Begin(lsn, 1_000, work.xid)]
    for owner, table, what, version in work.done:
        if owner not in work.aborted:
            messages += [shape(table, version), message(table, what, version)]
    return [encode(one) for one in [*messages, Commit(lsn, lsn + 40, 1_000)]]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """The same work as a stream in pieces, and as one of whole transactions."""
    server, plain = Server(), []
    running = [draw(works(10 * (number + 1))) for number in range(4)]
    lsn = 100
    while running:
        work = draw(st.sampled_from(running))
        if draw(st.integers(0, 3)) == 0:
            server.alter(draw(st.integers(0, len(TABLES) - 1)))
        if work.streamed and (work.todo or not work.is_begun):
            server.piece(work, draw(st.integers(0, len(work.todo))))
            continue
        running.remove(work)
        (server.end if work.streamed else server.whole)(work, lsn)
        if work.commits:
            plain += plainly(work, lsn)
            lsn += 100
    return server.sent, plain


def told(payloads: list[bytes], places: list[int], resume: Offset) -> tuple[list[object], list[Offset]]:
    room = Room(ROOM)
    unfinished, translation = StreamedTransactions(room), Translation(resume)
    batches, commits = [], []
    edges = [0, *sorted(place % (len(payloads) + 1) for place in places), len(payloads)]
    for first, behind in pairwise(edges):
        for part in unfinished.take(MessageBatch.join(payloads[first:behind])):
            rows, ends = translation.take(part.messages, streamed=part.streamed)
            translation.adopt(part.described)
            batches.append(changes_batch(rows))
            offsets = [ends.offset(index) for index in range(len(ends))]
            commits += [offset for offset in offsets if offset.transaction is None]
    assert room.used == 0
    assert len(unfinished) == 0
    table = pa.Table.from_batches(batches, schema=CHANGES_SCHEMA)
    table.validate(full=True)
    return table.to_pylist(), commits


resumes = st.sampled_from([Offset(0), Offset(140), Offset(0, 100, 2), Offset(140, 200, 1)])


@pytest.mark.long
@given(logs(), st.lists(st.integers(0, 60), max_size=6), resumes)
def test_pieces_or_whole_is_the_same(
    log: tuple[list[bytes], list[bytes]], places: list[int], resume: Offset
) -> None:
    streamed, plain = log
    assert told(streamed, places, resume) == told(plain, [], resume)


@given(logs(), st.data())
def test_broken_pieces_are_refused_by_our_error(
    log: tuple[list[bytes], list[bytes]], data: st.DataObject
) -> None:
    payloads = list(log[0])
    index = data.draw(st.integers(0, len(payloads) - 1))
    broken = bytearray(payloads[index])
    what = data.draw(st.sampled_from(["change", "cut", "add", "drop"]))
    if what == "change":
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    elif what == "cut":
        del broken[data.draw(st.integers(0, len(broken) - 1)) :]
    elif what == "add":
        broken += data.draw(st.binary(min_size=1, max_size=3))
    payloads[index : index + 1] = [] if what == "drop" else [bytes(broken)]
    unfinished, translation = StreamedTransactions(Room(ROOM)), Translation(Offset(0))
    try:
        for part in unfinished.take(MessageBatch.join(payloads)):
            translation.take(part.messages, streamed=part.streamed)
            translation.adopt(part.described)
    except HeadraceError as error:
        if error.kind not in {Kind.PROTOCOL, Kind.OTHER_LOG}:  # a changed position is one of another log
            raise


RELATION = Relation(1, TABLES[0], "d", (RelationColumn("a", key=True, type_oid=25, type_modifier=-1),))


def piece(xid: int, rows: int, *, first: bool = True) -> MessageBatch:
    messages: list[Message] = [RELATION, *[Insert(1, (b"x" * 1000,))] * rows]
    return MessageBatch.join([start(xid, first=first), *(with_xid(m, xid) for m in messages), stop()])


def test_what_has_no_room_is_refused_and_the_room_comes_back() -> None:
    room = Room(100_000)
    unfinished = StreamedTransactions(room)
    assert list(unfinished.take(piece(7, 50))) == []
    used = room.used
    assert list(unfinished.take(MessageBatch.join([abort(7, 7)]))) == []
    assert (used > 50_000, room.used) == (True, 0)
    with pytest.raises(SpoolFullError, match="limit of 0 MiB"):
        list(unfinished.take(piece(8, 100)))
    unfinished.forget()
    assert room.used == 0
    assert list(unfinished.take(piece(8, 50))) == []


def test_a_large_transaction_waits_in_a_file_without_a_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("spool")
    unfinished, translation = StreamedTransactions(Room(ROOM, folder)), Translation(Offset(0))
    for number in range(40):
        list(unfinished.take(piece(7, 100, first=number == 0)))
    assert list(folder.iterdir()) == []
    parts = [
        translation.take(part.messages, streamed=part.streamed)[0]
        for part in unfinished.take(MessageBatch.join([stream_commit(7, 100)]))
    ]
    assert sum(map(len, parts)) == 4000
    assert len(parts) > 4, "it came in one piece"


def spooled(room: Room, count: int) -> StreamedTransactions:
    """So many unfinished transactions, each of 500 kB."""
    unfinished = StreamedTransactions(room)
    for xid in range(10, 10 + count):
        list(unfinished.take(piece(xid, 500)))
    return unfinished


def test_many_transactions_wait_in_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    room = Room(ROOM, tmp_path_factory.mktemp("spool"))
    unfinished = spooled(room, 100)
    assert room.used > 50_000_000
    translation = Translation(Offset(0))
    told = sum(
        len(translation.take(part.messages, streamed=part.streamed)[0])
        for xid in range(10, 110)
        for part in unfinished.take(MessageBatch.join([stream_commit(xid, 100 * xid)]))
    )
    assert (told, room.used) == (50_000, 0)


def test_files_are_left_for_connections() -> None:
    with pytest.raises(SpoolFullError, match="there are 256 already"):
        spooled(Room(ROOM), 400)


def test_where_no_folder_takes_a_file_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A full disk, or one that cannot be written to: Python finds no folder for temporary files then."""
    nowhere = str(tmp_path_factory.mktemp("gone") / "nowhere")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [nowhere])
    with pytest.raises(SpoolFullError, match="No usable temporary directory"):
        spooled(Room(ROOM), 100)


def test_many_rolled_back_parts_take_no_longer_to_leave_out() -> None:
    """A loader with a savepoint for each row; each piece was compared with all of them."""
    spool = Spool(Room(ROOM), 7)
    for first in range(0, 200_000, 1000):
        spool.append(MessageBatch.join([with_xid(Insert(1, (b"x",)), first + row) for row in range(1000)]))
        for xid in range(first, first + 1000, 2):
            spool.abort(xid)
    began = time.process_time()
    assert sum(map(len, spool.read())) == 100_000
    assert time.process_time() - began < 1
