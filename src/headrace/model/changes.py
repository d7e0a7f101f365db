"""Define changes of rows as Spark carries them, and the operations on documents that follow from them.

A change is one Arrow row for each changed database row. All values are PostgreSQL's own text, so no value is
rounded and no type is lost. A column that the log did not carry (unchanged TOAST, columns outside the replica
identity) is absent from the map; a NULL is present with a null value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa

from headrace.model.lsn import Lsn

_ROW = pa.map_(pa.string(), pa.string())

CHANGES_SCHEMA = pa.schema(
    [
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("op", pa.string()),
        pa.field("before", _ROW),
        pa.field("after", _ROW),
        pa.field("_commit_lsn", pa.int64()),
        pa.field("_commit_seq", pa.int64()),
        pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_xid", pa.int64()),
        pa.field("_identity", pa.list_(pa.string())),
    ]
)
"""The columns of the `changes` envelope.

`_commit_lsn` is the commit record's address (bytes), `_commit_seq` counts the transaction's messages
before any filter. `_identity` names the columns of the replica identity, whose old values the log has where
an update changed them or a row was deleted; NULL with REPLICA IDENTITY FULL, and for rows that are not of the
log.
"""


class Op(enum.StrEnum):
    """The kinds of changes, as Debezium's letters."""

    INSERT = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"
    READ = "r"


Key = tuple[str | None, ...]
"""A key's values in key order, as PostgreSQL prints them; a usable key holds no None."""


@dataclass(frozen=True, slots=True)
class DocumentOperation:
    """An upsert, or a delete where `body` is None, of one document.

    Attributes:
        index: the logical index, as the deployment file names it.
        id: the document's id, formed from its key.
        version: a position up to which the content includes every change (bytes); the sink rejects older
            versions.
        body: the JSON document in UTF-8; None for a delete.
        routing: the sink's routing value; None for its default.
    """

    index: str
    id: str
    version: Lsn
    body: bytes | None
    routing: str | None = None


def key_of_id(id_: str, width: int) -> Key:
    """Return the key of `width` values that a document's id was formed from."""
    # A single key is not encoded: its colons and percent signs are its own.
    return (id_,) if width == 1 else tuple(unquote(part) for part in id_.split(":"))


def keys_of_ids(ids: Iterable[str], width: int) -> Iterator[Key]:
    """Yield the keys of documents' ids; ids that no row can have are left out: another program wrote them."""
    for id_ in ids:
        # No text of PostgreSQL holds a NUL.
        if len(key := key_of_id(id_, width)) == width and "\0" not in id_:
            yield key


def to_ipc(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return changes (in `CHANGES_SCHEMA`) as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CHANGES_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
