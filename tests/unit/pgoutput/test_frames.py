"""What the replication connection wraps around the messages, both ways."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput.frames import Keepalive, encode_status, split_frames
from support.frames import frames_of

WAL_DATA = b"w" + struct.pack(">QQq", 0x1_0000_0000, 0x1_0000_0020, 1) + b"payload"
LATER = b"w" + struct.pack(">QQq", 0x1_0000_0040, 0x1_0000_0050, 1) + b"x"
KEEPALIVE = b"k" + struct.pack(">QqB", 2**64 - 1, -5, 1)
QUIET = KEEPALIVE[:-1] + b"\0"

lsns = st.integers(0, 2**64 - 1)


def test_messages_lie_together_and_the_last_says_where_it_starts() -> None:
    batch, start, keepalives = split_frames(frames_of([WAL_DATA, LATER]))
    assert [batch.payload(index) for index in range(len(batch))] == [b"payload", b"x"]
    assert (start, keepalives) == (0x1_0000_0040, [])


def test_a_keepalive_says_whether_it_wants_an_answer_and_where_it_stands() -> None:
    batch, start, keepalives = split_frames(frames_of([QUIET, WAL_DATA, KEEPALIVE]))
    assert [batch.payload(index) for index in range(len(batch))] == [b"payload"]
    assert start == 0x1_0000_0000
    assert keepalives == [
        (0, Keepalive(2**64 - 1, reply_requested=False)),
        (1, Keepalive(2**64 - 1, reply_requested=True)),
    ]


def test_nothing_is_nothing() -> None:
    batch, start, keepalives = split_frames(frames_of([]))
    assert (len(batch), start, keepalives) == (0, 0, [])


@pytest.mark.parametrize("frame", [WAL_DATA[:26], KEEPALIVE])
def test_a_frame_that_ends_too_early_is_refused(frame: bytes) -> None:
    for size in range(len(frame)):
        with pytest.raises(HeadraceError) as raised:
            split_frames(frames_of([LATER, frame[:size], LATER]))
        assert raised.value.kind is Kind.PROTOCOL


def test_a_keepalive_that_goes_on_is_refused() -> None:
    with pytest.raises(HeadraceError, match="1 bytes are left"):
        split_frames(frames_of([KEEPALIVE + b"\0"]))


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_frames_or_refused(frames: list[bytes]) -> None:
    try:
        split_frames(frames_of(frames))
    except HeadraceError as error:
        if error.kind is not Kind.PROTOCOL:
            raise


@given(lsns, lsns, st.integers(0, 2**62), st.booleans())
def test_a_status_reports_durable_as_flushed_and_applied(
    received: int, durable: int, now: int, reply: bool
) -> None:
    status = encode_status(received=received, durable=durable, now_us=now, reply=reply)
    letter, written, flushed, applied, clock, wanted = struct.unpack(">cQQQqB", status)
    assert (letter, written, flushed, applied) == (b"r", received, durable, durable)
    assert clock == now - 946_684_800_000_000
    assert wanted == reply
    assert len(status) == 34
