"""What the replication connection wraps around the messages, both ways."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput import Keepalive, WalData, decode_frame, encode_status

WAL_DATA = b"w" + struct.pack(">QQq", 0x1_0000_0000, 0x1_0000_0020, 1) + b"payload"
KEEPALIVE = b"k" + struct.pack(">QqB", 2**64 - 1, -5, 1)

lsns = st.integers(0, 2**64 - 1)


def test_wal_data_carries_its_payload() -> None:
    assert decode_frame(WAL_DATA) == WalData(0x1_0000_0000, 0x1_0000_0020, b"payload")


def test_a_keepalive_says_whether_it_wants_an_answer() -> None:
    assert decode_frame(KEEPALIVE) == Keepalive(2**64 - 1, reply_requested=True)
    assert decode_frame(KEEPALIVE[:-1] + b"\0") == Keepalive(2**64 - 1, reply_requested=False)


@pytest.mark.parametrize("frame", [WAL_DATA[:25], KEEPALIVE])
def test_a_frame_that_ends_too_early_is_refused(frame: bytes) -> None:
    for size in range(len(frame)):
        with pytest.raises(HeadraceError) as raised:
            decode_frame(frame[:size])
        assert raised.value.kind is Kind.PROTOCOL


def test_a_keepalive_that_goes_on_is_refused() -> None:
    with pytest.raises(HeadraceError, match="1 bytes are left"):
        decode_frame(KEEPALIVE + b"\0")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    try:
        decode_frame(data)
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
