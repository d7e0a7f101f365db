"""What do the log's bytes mean? Pure: bytes to messages to columns."""

from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.frames import Keepalive, WalData, decode_frame, encode_status
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
    "Origin",
    "Relation",
    "RelationColumn",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
    "WalData",
    "decode_frame",
    "decode_message",
    "encode_status",
]
