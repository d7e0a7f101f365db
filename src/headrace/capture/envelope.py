"""What does a change of any table look like to a program? The `changes` envelope. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model import CHANGES_SCHEMA, Op, TableName
from headrace.model.values import column_texts

_ROW = CHANGES_SCHEMA.field("after").type
_POSITION = {
    "commit_lsn": "_commit_lsn",
    "commit_seq": "_commit_seq",
    "commit_timestamp": "_commit_timestamp",
    "xid": "_xid",
}
_SOURCE = pa.struct(
    [
        pa.field("database", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("partition_of", pa.string()),
        *(pa.field(name, CHANGES_SCHEMA.field(column).type) for name, column in _POSITION.items()),
        pa.field("snapshot", pa.bool_()),
        pa.field("snapshot_attempt", pa.int32()),
    ]
)
ENVELOPE_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("op", pa.string()),
        pa.field("key", _ROW),
        pa.field("before", _ROW),
        pa.field("after", _ROW),
        pa.field("source", _SOURCE),
    ]
)
"""The columns of `envelope=changes`.

`table` is the name as SQL writes it, `public` left out; `op` one of r, c, u, d, t, Debezium's letters; `key`
the row's key behind the change, of a delete before it, and NULL where a table has none. The values are
PostgreSQL's own text. A column that the log did not carry is absent from its map. A TRUNCATE of one partition
has the partition's name, and in `source.partition_of` that of the table whose rows are meant.
"""

_Rows = npt.NDArray[np.int64]
Keys = Mapping[TableName, tuple[str, ...]]
"""The key's columns of each table, in key order; empty where it has none."""


def enveloped(
    changes: pa.RecordBatch, keys: Keys, database: str, roots: Mapping[TableName, TableName]
) -> pa.RecordBatch:
    """Changes as a program that follows many tables gets them.

    Args:
        changes: in `CHANGES_SCHEMA`.
        keys: of every table among them.
        database: its name.
        roots: the followed table of each partition that was truncated by itself.

    Returns:
        The same rows in `ENVELOPE_SCHEMA`.
    """
    rows = len(changes)
    names = whole = pa.nulls(rows, pa.string())
    key = pa.nulls(rows, _ROW)
    groups = list(by_table(changes))
    if len(groups) == 1:
        [(table, _)] = groups
        names, key = pa.repeat(str(table), rows), _key(changes, keys.get(table, ()))
    elif groups:
        back = pa.array(np.argsort(np.concatenate([places for _, places in groups]), kind="stable"))
        names = pa.concat_arrays([pa.repeat(str(table), len(places)) for table, places in groups]).take(back)
        parts = [_key(changes.take(pa.array(places)), keys.get(table, ())) for table, places in groups]
        key = pa.concat_arrays(parts).take(back)
    if roots:
        known = [str(leaf) for leaf in roots]
        place = pc.index_in(names, value_set=pa.array(known, pa.string()))
        whole = pa.array([str(root) for root in roots.values()], pa.string()).take(place)
    is_read, attempt = attempts(changes)
    source = pa.StructArray.from_arrays(
        [
            pa.repeat(database, rows),
            changes.column("schema"),
            changes.column("table"),
            whole,
            *(changes.column(column) for column in _POSITION.values()),
            is_read,
            attempt,
        ],
        fields=list(_SOURCE),
    )
    return pa.RecordBatch.from_arrays(
        [names, changes.column("op"), key, changes.column("before"), changes.column("after"), source],
        schema=ENVELOPE_SCHEMA,
    )


def unwrapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows in `ENVELOPE_SCHEMA` as they were before `enveloped`, in `CHANGES_SCHEMA`."""
    source = batch.column("source")
    inside = {"schema": "schema", "table": "table"} | {column: name for name, column in _POSITION.items()}
    columns = [
        pc.struct_field(source, inside[field.name]) if field.name in inside else batch.column(field.name)
        for field in CHANGES_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, CHANGES_SCHEMA, strict=True)],
        schema=CHANGES_SCHEMA,
    )


def attempts(changes: pa.RecordBatch) -> tuple[pa.BooleanArray, pa.Int32Array]:
    """Whether each change (in `CHANGES_SCHEMA`) is of a reading, not of the log, and of which attempt."""
    op = changes.column("op")
    is_emptied = pc.and_(pc.equal(op, Op.TRUNCATE.value), pc.is_null(changes.column("_xid")))
    is_read = pc.or_(pc.equal(op, Op.READ.value), is_emptied)
    attempt = pc.divide(pc.add(changes.column("_commit_seq"), 1), 2)
    return is_read, pc.if_else(is_read, attempt, None).cast(pa.int32())


def by_table(changes: pa.RecordBatch) -> Iterator[tuple[TableName, _Rows]]:
    """Each table among `changes` (in `CHANGES_SCHEMA`), with the places of its rows in order."""
    if not len(changes):
        return
    schema, table = (changes.column(name).dictionary_encode() for name in ("schema", "table"))
    code = schema.indices.to_numpy() * np.int64(len(table.dictionary)) + table.indices.to_numpy()
    for one in np.unique(code).tolist():
        of, name = divmod(one, len(table.dictionary))
        yield (
            TableName(schema.dictionary[of].as_py(), table.dictionary[name].as_py()),
            np.flatnonzero(code == one),
        )


def key_texts(changes: pa.RecordBatch, key: tuple[str, ...]) -> list[pa.StringArray]:
    """Each row's key, column by column: behind the change, of a delete before it; all of one table."""
    before, after = column_texts(changes.column("before"), key), column_texts(changes.column("after"), key)
    return [pc.if_else(after[name].known, after[name].texts, before[name].texts) for name in key]


def _key(changes: pa.RecordBatch, key: tuple[str, ...]) -> pa.MapArray:
    rows = len(changes)
    if not key:
        return pa.nulls(rows, _ROW)
    offsets = np.arange(rows + 1, dtype=np.int32) * len(key)
    names = pa.array(key, pa.string()).take(pa.array(np.tile(np.arange(len(key)), rows)))
    by_row = np.arange(rows * len(key)).reshape(len(key), rows).T.ravel()
    values = pa.concat_arrays(key_texts(changes, key)).take(pa.array(by_row))
    emptied = pc.equal(changes.column("op"), Op.TRUNCATE.value)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, mask=emptied)
