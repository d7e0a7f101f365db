"""What do the log's bytes mean? Pure: bytes to messages to columns."""

from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.frames import Keepalive, encode_status, split_frames
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
    "Insert",
    "Keepalive",
    "LogicalMessage",
    "Message",
    "MessageBatch",
    "Origin",
    "Relation",
    "RelationColumn",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
    "decode_message",
    "encode_status",
    "split_frames",
]
