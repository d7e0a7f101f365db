"""What does the replication connection wrap around the plugin's messages?

Source: PostgreSQL documentation, "Streaming Replication Protocol" (XLogData, keepalive, status update).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headrace.model import Lsn
from headrace.pgoutput.cursor import Cursor, broken

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970-01-01, where the server's clock starts."""

_WAL_DATA = struct.Struct(">cQQq")
_STATUS = struct.Struct(">cQQQqB")


@dataclass(frozen=True, slots=True)
class WalData:
    """A frame that carries one plugin message."""

    start: Lsn
    wal_end: Lsn
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The server is alive and has sent everything before `wal_end`."""

    wal_end: Lsn
    reply_requested: bool


def decode_frame(data: bytes) -> WalData | Keepalive:
    """The frame in one CopyData message.

    Raises:
        HeadraceError: PROTOCOL.
    """
    if data[:1] == b"w" and len(data) >= _WAL_DATA.size:
        _, start, wal_end, _ = _WAL_DATA.unpack_from(data)
        return WalData(start, wal_end, data[_WAL_DATA.size :])
    cursor = Cursor(data)
    letter = cursor.letter()
    if letter == "k":
        wal_end = cursor.uint64()
        cursor.int64()
        reply = cursor.uint8() != 0
        cursor.finish()
        return Keepalive(wal_end, reply)
    if letter == "w":
        raise broken(f"a frame of {len(data)} bytes ends too early")
    raise broken(f"unknown frame {letter!r}")


def encode_status(*, received: Lsn, durable: Lsn, now_us: int, reply: bool = False) -> bytes:
    """A standby status update.

    Args:
        received: the last byte seen plus one.
        durable: the position up to which the server may forget; the only one that moves the slot.
        now_us: microseconds since 1970-01-01 UTC.
        reply: ask the server to answer at once.
    """
    return _STATUS.pack(b"r", received, durable, durable, now_us - POSTGRES_EPOCH_US, int(reply))
