"""Decode the bytes of `pgoutput` to messages and to columns. Pure."""

from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.frames import Frames, Keepalive, encode_status, split_frames
from headrace.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Unchanged,
    Update,
)

__all__ = [
    "UNCHANGED",
    "Begin",
    "Commit",
    "Delete",
    "Frames",
    "Insert",
    "Keepalive",
    "LogicalMessage",
    "Message",
    "MessageBatch",
    "Origin",
    "Relation",
    "RelationColumn",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
    "decode_message",
    "encode_status",
    "split_frames",
]
