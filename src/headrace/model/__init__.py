"""Values that all packages share: positions, table names, changes, document operations.

Pure: no input or output, and no import from other packages.
"""

from headrace.model.changes import CHANGES_SCHEMA, Op, decode_changes
from headrace.model.commits import KnownCommit
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.model.names import TableName
from headrace.model.operation import DocumentOperation, Key, key_of_id
from headrace.model.ranges import CtidRange

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
