"""Decode the bytes of `pgoutput` to messages and to columns. Pure."""

from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.frames import Frames, Keepalive, encode_status, split_frames
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

__all__ = [
    "Frames",
    "Keepalive",
    "LogicalMessage",
    "MessageBatch",
    "Relation",
    "RelationColumn",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "decode_message",
    "encode_status",
    "split_frames",
]
