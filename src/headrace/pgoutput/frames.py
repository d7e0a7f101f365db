"""Decode and encode the frames of the replication protocol around the plugin's messages.

Source: PostgreSQL documentation, "Streaming Replication Protocol" (XLogData, keepalive, status update).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from headrace.model.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.cursor import Cursor, broken

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970-01-01: PostgreSQL's times count from there."""

# Letter, position of the data, end of the log, time. Below: letter, received, flushed, applied, time, reply.
_WAL_DATA = struct.Struct(">cQQq")
_WAL_LETTER = ord("w")
_STATUS = struct.Struct(">cQQQqB")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """A keepalive: the server has sent everything before `wal_end` (bytes)."""

    wal_end: Lsn
    reply_requested: bool


def decode_keepalive(data: bytes) -> Keepalive:
    """Decode the keepalive in one CopyData message.

    Raises:
        HeadraceError: PROTOCOL.
    """
    cursor = Cursor(data)
    letter = cursor.letter()
    if letter != "k":
        raise broken(f"unknown frame {letter!r}")
    wal_end = cursor.uint64()
    # The server's clock.
    cursor.int64()
    reply = cursor.uint8() != 0
    cursor.finish()
    return Keepalive(wal_end, reply)


@dataclass(slots=True)
class Frames:
    """CopyData messages, one after the other in one buffer.

    To allocate memory for each message would cost more than to decode it.

    Attributes:
        data: the messages' bytes.
        ends: where each message ends.
    """

    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)


def split_frames(frames: Frames) -> tuple[MessageBatch, Lsn, list[tuple[int, Keepalive]]]:
    """Split frames, in the order of the stream, into messages and keepalives; `frames` is consumed.

    Returns:
        the plugin messages; the position of the last of them in the log (bytes, 0 without any); and each
        keepalive with the number of messages before it.

    Raises:
        HeadraceError: PROTOCOL.
    """
    batch = MessageBatch.within(frames.data, frames.ends)
    if (batch.end - batch.begin < 1).any():
        raise broken("a frame is empty")
    is_data = batch.data[batch.begin] == _WAL_LETTER
    keepalives: list[tuple[int, Keepalive]] = []
    # Keepalives are rare beside data: only they are decoded one by one.
    if not is_data.all():
        before = np.cumsum(is_data)
        others = np.flatnonzero(~is_data).tolist()
        keepalives = [(int(before[index]), decode_keepalive(batch.payload(index))) for index in others]
    begin, end = batch.begin[is_data] + _WAL_DATA.size, batch.end[is_data]
    if (begin >= end).any():
        raise broken("a frame ends too early")
    # The header of the last message, which was skipped: its first number is the position.
    start = int.from_bytes(batch.data[begin[-1] - 24 : begin[-1] - 16].tobytes()) if len(begin) else 0
    return MessageBatch(batch.data, begin, end), start, keepalives


def encode_status(*, received: Lsn, durable: Lsn, now_us: int, reply: bool = False) -> bytes:
    """Encode a standby status update.

    Args:
        received: the last received byte plus one.
        durable: the position up to which the server may drop the log; only it advances the slot.
        now_us: the time in microseconds since 1970-01-01 UTC.
        reply: whether to ask the server to answer at once.
    """
    # Flushed and applied: for a logical slot the server looks at the flushed position alone.
    return _STATUS.pack(b"r", received, durable, durable, now_us - POSTGRES_EPOCH_US, int(reply))
