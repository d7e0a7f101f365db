"""Many messages at once say what each of them says alone, however the log is cut, resumed or broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.capture import Offset
from headrace.capture.columns import changes_batch
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.messages import LogicalMessage, Relation, RelationColumn, Truncate
from reference.columns import ChunkBuilder
from reference.encoding import encode
from reference.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    Type,
    Update,
    decode_message,
)
from reference.translation import Translation as SlowTranslation

TABLES = [TableName("public", "users"), TableName("Shop", "Lines"), TableName("public", "keyless")]

values = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=3).map(bytes.hex).map(str.encode), st.just("größer".encode())
)
new_values = values | st.just(UNCHANGED)


@st.composite
def relations(draw: st.DrawFn, number: int) -> Relation:
    width = draw(st.integers(0, 4))
    full = draw(st.booleans())
    columns = tuple(
        RelationColumn(f"c{column}", full or draw(st.booleans()), 25, -1) for column in range(width)
    )
    return Relation(number, TABLES[number], "f" if full else "d", columns)


@st.composite
def rows(draw: st.DrawFn, relation: Relation) -> Message:
    width = len(relation.columns)
    new = tuple(draw(new_values) for _ in range(width))
    old = tuple(draw(values) for _ in range(width))
    as_key = relation.replica_identity != "f"
    kind = draw(st.sampled_from("IUUUDD"))
    if kind == "I":
        return Insert(relation.oid, tuple(draw(values) for _ in range(width)))
    if kind == "D":
        return Delete(relation.oid, old, as_key)
    return Update(relation.oid, old if draw(st.booleans()) else None, as_key, new)


others: st.SearchStrategy[Message] = st.sampled_from(
    [
        Origin(1, "elsewhere"),
        Type(9, "public", "mood"),
        LogicalMessage(transactional=True, lsn=1, prefix="p", content=b"x"),
    ]
)


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """Whole transactions over a few tables that are described again and again."""
    known: dict[int, Relation] = {}
    log: list[Message] = []
    lsn = 100
    for xid in range(draw(st.integers(1, 5))):
        log.append(Begin(lsn, 1_000 + xid, xid))
        for _ in range(draw(st.integers(0, 8))):
            number = draw(st.integers(0, len(TABLES) - 1))
            if number not in known or draw(st.integers(0, 5)) == 0:
                known[number] = draw(relations(number))
                log.append(known[number])
            what = draw(st.integers(0, 9))
            if what == 0:
                emptied = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, unique=True))
                log.append(Truncate(tuple(emptied), cascade=True, restart_identity=False))
            elif what == 1:
                log.append(draw(others))
            else:
                log.append(draw(rows(known[number])))
        log.append(Commit(lsn, lsn + 40, 1_000 + xid))
        lsn += 100
    return log


resumes = st.sampled_from([0, 100, 140, 240, 340]).map(Offset) | st.builds(
    lambda place, sequence: Offset(place[0], place[1], sequence),
    st.sampled_from([(0, 100), (140, 200), (240, 300)]),
    st.integers(0, 6),
)


@dataclass
class Outcome:
    """What a reader made of a log: changes, places where a batch may end after a commit, its position."""

    changes: list[dict[str, object]]
    commits: list[tuple[Offset, int, int, int]]
    position: Offset
    xid: int | None
    weight: int


def plain(changes: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """The rows; their times as numbers, which a broken one may be too large for."""
    time = changes.schema.get_field_index("_commit_timestamp")
    rows: list[dict[str, object]] = changes.set_column(
        time, "_commit_timestamp", changes.column(time).cast(pa.int64())
    ).to_pylist()
    return rows


def slowly(payloads: Sequence[bytes], resume: Offset, tables: frozenset[TableName]) -> Outcome:
    translation = SlowTranslation(resume, tables, chunk=ChunkBuilder())
    commits = []
    for payload in payloads:
        xid = translation.take(decode_message(payload), len(payload))
        if xid is not None:
            chunk = translation.chunk
            commits.append((translation.position, xid, chunk.bytes, len(chunk)))
    weight = translation.chunk.bytes
    changes = plain(translation.chunk.seal())
    return Outcome(changes, commits, translation.position, translation.xid, weight)


def quickly(parts: Sequence[Sequence[bytes]], resume: Offset, tables: frozenset[TableName]) -> Outcome:
    translation = Translation(resume, tables)
    batches, commits, size, count = [], [], 0, 0
    for part in parts:
        found, ends = translation.take(MessageBatch.join(part))
        for index in range(len(ends)):
            offset = ends.offset(index)
            if offset.transaction is None:
                there = (size + int(ends.bytes[index]), count + int(ends.rows[index]))
                commits.append((offset, int(ends.xid[index]), *there))
        if len(found):
            assert len(ends)
            assert int(ends.rows[-1]) == len(found), "no end after the last change"
        batch = changes_batch(found)
        batch.validate(full=True)
        batches.append(batch)
        size, count = size + int(found.weight.sum()), count + len(found)
    changes = plain(pa.Table.from_batches(batches, schema=CHANGES_SCHEMA))
    return Outcome(changes, commits, translation.position, translation.xid, size)


def cut(payloads: list[bytes], places: list[int]) -> list[list[bytes]]:
    edges = [0, *sorted(place % (len(payloads) + 1) for place in places), len(payloads)]
    return [payloads[first:behind] for first, behind in pairwise(edges) if behind > first]


@given(
    logs(), st.lists(st.integers(0, 60), max_size=6), resumes, st.sets(st.sampled_from(TABLES), max_size=2)
)
def test_all_at_once_or_one_by_one_is_the_same(
    log: list[Message], places: list[int], resume: Offset, tables: set[TableName]
) -> None:
    payloads = [encode(message) for message in log]
    wanted = frozenset(tables)
    assert quickly(cut(payloads, places), resume, wanted) == slowly(payloads, resume, wanted)


@given(logs(), st.data())
def test_broken_bytes_are_refused_by_both_or_mean_the_same(log: list[Message], data: st.DataObject) -> None:
    """Drasi's hole 3: what cannot be decoded is dropped at debug level.

    A message of `pg_logical_emit_message` that nobody asked for, a type's name and an origin say nothing of
    rows: read all at once, they are passed over, whole or not, as in pieces of an unfinished transaction.
    """
    payloads = [encode(message) for message in log]
    told = [index for index, message in enumerate(log) if not isinstance(message, LogicalMessage)]
    index = data.draw(st.sampled_from(told))
    broken = bytearray(payloads[index])
    what = data.draw(st.sampled_from(["change", "cut", "add", "drop"]))
    if what == "change":
        place = data.draw(st.integers(0, len(broken) - 1))
        broken[place] = data.draw(st.integers(0, 255))
    elif what == "cut":
        del broken[data.draw(st.integers(0, len(broken) - 1)) :]
    elif what == "add":
        broken += data.draw(st.binary(min_size=1, max_size=3))
    assume(not broken.startswith((b"M", b"Y", b"O")))
    payloads[index : index + 1] = [] if what == "drop" else [bytes(broken)]
    parts = cut(payloads, data.draw(st.lists(st.integers(0, 60), max_size=3)))
    assert outcome(lambda: quickly(parts, Offset(0), frozenset())) == outcome(
        lambda: slowly(payloads, Offset(0), frozenset())
    )


def outcome(attempt: Callable[[], Outcome]) -> Outcome | None:
    """None where the bytes are refused; by anything but our own error the test ends."""
    try:
        return attempt()
    except HeadraceError as error:
        refused = error.kind in {Kind.PROTOCOL, Kind.DATABASE, Kind.OTHER_LOG}
    except pa.ArrowInvalid:  # the slow one's word for what is no UTF-8
        refused = True
    assert refused
    return None
