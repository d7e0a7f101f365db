"""What each message kind says, and that no bytes whatever do worse than a PROTOCOL error."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.pgoutput.messages import (
    LogicalMessage,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
)
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

EPOCH = 946_684_800_000_000


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def cell(value: bytes) -> bytes:
    return b"t" + struct.pack(">i", len(value)) + value


def row(*cells: bytes) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(cells)


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


def u64(value: int) -> bytes:
    return struct.pack(">Q", value)


COLUMNS = (
    struct.pack(">H", 2)
    + b"\x01" + text("id") + u32(23) + struct.pack(">i", -1)
    + b"\x00" + text("Größe") + u32(1700) + struct.pack(">i", 655366)
)  # fmt: skip

MESSAGES: dict[str, tuple[bytes, Message]] = {
    "begin": (
        b"B" + u64(0x1_0000_0010) + u64(7) + u32(4_000_000_000),
        Begin(0x1_0000_0010, EPOCH + 7, 4_000_000_000),
    ),
    "commit": (b"C\0" + u64(16) + u64(48) + u64(9), Commit(16, 48, EPOCH + 9)),
    "origin": (b"O" + u64(5) + text("elsewhere"), Origin(5, "elsewhere")),
    "relation": (
        b"R" + u32(16384) + text("Shop") + text("Line Items") + b"i" + COLUMNS,
        Relation(
            16384,
            TableName("Shop", "Line Items"),
            "i",
            (
                RelationColumn("id", key=True, type_oid=23, type_modifier=-1),
                RelationColumn("Größe", key=False, type_oid=1700, type_modifier=655366),
            ),
        ),
    ),
    "relation of pg_catalog": (
        b"R" + u32(1) + text("") + text("t") + b"d" + row(),
        Relation(1, TableName("pg_catalog", "t"), "d", ()),
    ),
    "type": (b"Y" + u32(16500) + text("public") + text("mood"), Type(16500, "public", "mood")),
    "insert": (
        b"I" + u32(3) + b"N" + row(cell(b"1"), b"n", b"u", cell(b"")),
        Insert(3, (b"1", None, UNCHANGED, b"")),
    ),
    "update": (b"U" + u32(3) + b"N" + row(cell(b"1")), Update(3, None, old_is_key=False, new=(b"1",))),
    "update with key": (
        b"U" + u32(3) + b"K" + row(cell(b"1")) + b"N" + row(cell(b"2")),
        Update(3, (b"1",), old_is_key=True, new=(b"2",)),
    ),
    "update with row": (
        b"U" + u32(3) + b"O" + row(b"n") + b"N" + row(cell(b"2")),
        Update(3, (None,), old_is_key=False, new=(b"2",)),
    ),
    "delete by key": (b"D" + u32(3) + b"K" + row(cell(b"1")), Delete(3, (b"1",), old_is_key=True)),
    "delete of row": (b"D" + u32(3) + b"O" + row(cell(b"1")), Delete(3, (b"1",), old_is_key=False)),
    "truncate": (
        b"T" + u32(2) + b"\x03" + u32(8) + u32(9),
        Truncate((8, 9), cascade=True, restart_identity=True),
    ),
    "truncate plain": (
        b"T" + u32(1) + b"\x00" + u32(8),
        Truncate((8,), cascade=False, restart_identity=False),
    ),
    "message": (
        b"M\x01" + u64(77) + text("app") + u32(3) + b"a\0b",
        LogicalMessage(transactional=True, lsn=77, prefix="app", content=b"a\0b"),
    ),
    "stream start": (b"S" + u32(7) + b"\x01", StreamStart(7, first=True)),
    "stream goes on": (b"S" + u32(7) + b"\x00", StreamStart(7, first=False)),
    "stream stop": (b"E", StreamStop()),
    "stream commit": (b"c" + u32(7) + b"\0" + u64(16) + u64(48) + u64(9), StreamCommit(7, 16, 48, EPOCH + 9)),
    "stream abort": (b"A" + u32(7) + u32(8), StreamAbort(7, 8)),
}

KINDS = pytest.mark.parametrize("name", MESSAGES)


def decode_or_refuse(payload: bytes) -> None:
    try:
        decode_message(payload)
    except HeadraceError as error:
        if error.kind is not Kind.PROTOCOL:
            raise


@KINDS
def test_each_kind_is_read_whole(name: str) -> None:
    payload, expected = MESSAGES[name]
    assert decode_message(payload) == expected


@KINDS
def test_a_message_that_ends_too_early_is_refused_at_every_byte(name: str) -> None:
    payload, _ = MESSAGES[name]
    for size in range(len(payload)):
        with pytest.raises(HeadraceError) as raised:
            decode_message(payload[:size])
        assert raised.value.kind is Kind.PROTOCOL


@KINDS
def test_a_message_that_goes_on_is_refused(name: str) -> None:
    payload, _ = MESSAGES[name]
    with pytest.raises(HeadraceError, match="left after a message") as raised:
        decode_message(payload + b"\0")
    assert raised.value.kind is Kind.PROTOCOL


@given(st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    payload = bytearray(MESSAGES[data.draw(st.sampled_from(sorted(MESSAGES)))][0])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(payload))


@given(st.sampled_from("BCORYIUDTMSEcA"), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(letter: str, rest: bytes) -> None:
    decode_or_refuse(letter.encode() + rest)


@given(st.binary(max_size=50))
def test_bytes_of_no_kind_are_read_or_refused(payload: bytes) -> None:
    decode_or_refuse(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"T" + u32(2**32 - 1) + b"\0" + u32(1) * 100,
        b"I" + u32(1) + b"N\xff\xff" + b"n" * 100,
        b"I" + u32(1) + b"N\0\x01t" + u32(2**31 - 1) + b"x",
        b"I" + u32(1) + b"N\0\x01t" + u32(2**32 - 1) + b"x",
        b"M\x01" + u64(1) + b"p\0" + u32(2**31 - 1),
        b"R" + u32(1) + b"s\0t\0d\xff\xff" + (b"\0c\0" + u64(0)) * 10,
    ],
)
def test_a_count_beyond_the_message_costs_no_memory(payload: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(HeadraceError) as raised:
            decode_message(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raised.value.kind is Kind.PROTOCOL
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "ends too early"),
        (b"Z", "unknown message 'Z'"),
        (b"s" + u32(1) + b"\x01", "unknown message 's'"),
        (b"I" + u32(1) + b"O" + row(), "expected 'N'"),
        (b"U" + u32(1) + b"X" + row(), "unknown row kind 'X'"),
        (b"U" + u32(1) + b"K" + row() + b"K" + row(), "expected 'N'"),
        (b"D" + u32(1) + b"N" + row(), "unknown row kind 'N'"),
        (b"I" + u32(1) + b"N" + row(b"x\0\0\0\0"), "unknown value kind 'x'"),
        (b"O" + u64(1) + b"\xff\xff\0", "not UTF-8"),
        (b"O" + u64(1) + b"endless", "does not end"),
    ],
)
def test_the_error_says_what_is_wrong(payload: bytes, said: str) -> None:
    with pytest.raises(HeadraceError, match=said) as raised:
        decode_message(payload)
    assert raised.value.kind is Kind.PROTOCOL
    assert raised.value.remedy
