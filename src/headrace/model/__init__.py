"""Values that all packages share: positions, table names, changes, document operations.

Pure: no input or output, and no import from other packages.
"""

from headrace.model.changes import CHANGES_SCHEMA, DocumentOperation, Key, Op, decode_changes, key_of_id
from headrace.model.lsn import KnownCommit, Lsn, format_lsn, parse_lsn
from headrace.model.names import CtidRange, TableName

__all__ = [
    "CHANGES_SCHEMA",
    "CtidRange",
    "DocumentOperation",
    "Key",
    "KnownCommit",
    "Lsn",
    "Op",
    "TableName",
    "decode_changes",
    "format_lsn",
    "key_of_id",
    "parse_lsn",
]
