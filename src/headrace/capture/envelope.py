"""Build the `changes` envelope: changes of any table in one schema. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.known import uncarried_key
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import TableName
from headrace.model.values import column_texts

_ROW = CHANGES_SCHEMA.field("after").type
_POSITION = {name: f"_{name}" for name in ("commit_lsn", "commit_seq", "commit_timestamp", "xid")}
_IDENTITY = CHANGES_SCHEMA.field("_identity")
_SOURCE = pa.struct(
    [
        *(pa.field(name, pa.string()) for name in ("database", "schema", "table", "partition_of")),
        *(pa.field(name, CHANGES_SCHEMA.field(column).type) for name, column in _POSITION.items()),
        pa.field("snapshot", pa.bool_()),
        pa.field("snapshot_attempt", pa.int32()),
        pa.field("identity", _IDENTITY.type),
    ]
)
ENVELOPE_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("table", "op")),
        *(pa.field(name, _ROW) for name in ("key", "before", "after")),
        pa.field("source", _SOURCE),
    ]
)
"""The columns of `envelope=changes`.

`table` is the name as SQL writes it, without `public`. `op` is one of Debezium's letters r, c, u, d, t. `key`
is the row's key after the change, for a delete the key before it, and NULL where a table has no key. Values
are PostgreSQL's own text. A column that the log did not carry is absent from its map. A TRUNCATE of one
partition has the partition's name; `source.partition_of` names the table that it belongs to.
`source.identity` is `_identity` of `CHANGES_SCHEMA`.
"""

_Rows = npt.NDArray[np.int64]
Keys = Mapping[TableName, tuple[str, ...]]
"""The key columns of each table, in key order; empty for a table without a key."""


def enveloped(
    changes: pa.RecordBatch,
    keys: Keys,
    database: str,
    roots: Mapping[TableName, TableName],
    *,
    checks_keys: bool = True,
) -> pa.RecordBatch:
    """Put changes into the `changes` envelope.

    Args:
        changes: in `CHANGES_SCHEMA`.
        keys: the key columns of every table among the changes.
        database: the database's name.
        roots: the followed table of each partition that was truncated on its own.
        checks_keys: whether a key that the log does not carry is an error; else it is not in the row's key,
            and `source.identity` tells.

    Returns:
        The same rows in `ENVELOPE_SCHEMA`.

    Raises:
        HeadraceError: REPLICA_IDENTITY, with `checks_keys`.
    """
    rows = len(changes)
    names = whole = pa.nulls(rows, pa.string())
    key = pa.nulls(rows, _ROW)
    groups = list(by_table(changes))
    if len(groups) == 1:
        [(table, _)] = groups
        names, key = pa.repeat(str(table), rows), _key(changes, keys.get(table, ()), checks_keys)
    elif groups:
        # Rows of several tables are put back into the order of the log.
        back = pa.array(np.argsort(np.concatenate([places for _, places in groups]), kind="stable"))
        names = pa.concat_arrays([pa.repeat(str(table), len(places)) for table, places in groups]).take(back)
        parts = [
            _key(changes.take(pa.array(places)), keys.get(table, ()), checks_keys) for table, places in groups
        ]
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
            changes.column(_IDENTITY.name),
        ],
        fields=list(_SOURCE),
    )
    return pa.RecordBatch.from_arrays(
        [names, changes.column("op"), key, changes.column("before"), changes.column("after"), source],
        schema=ENVELOPE_SCHEMA,
    )


def unwrapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows in `ENVELOPE_SCHEMA` back to `CHANGES_SCHEMA`: the inverse of `enveloped`."""
    source = batch.column("source")
    inside = {"schema": "schema", "table": "table", _IDENTITY.name: "identity"}
    inside |= {column: name for name, column in _POSITION.items()}
    columns = [
        pc.struct_field(source, inside[field.name]) if field.name in inside else batch.column(field.name)
        for field in CHANGES_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, CHANGES_SCHEMA, strict=True)],
        schema=CHANGES_SCHEMA,
    )


def attempts(changes: pa.RecordBatch) -> tuple[pa.BooleanArray, pa.Int32Array]:
    """Return whether each change is part of an initial snapshot, and the snapshot's attempt (else NULL).

    Args:
        changes: in `CHANGES_SCHEMA`.
    """
    op = changes.column("op")
    # A truncate of the log has an xid; the one before a snapshot's rows has none.
    is_emptied = pc.and_(pc.equal(op, Op.TRUNCATE.value), pc.is_null(changes.column("_xid")))
    is_read = pc.or_(pc.equal(op, Op.READ.value), is_emptied)
    # The inverse of `SnapshotPlace`: rows have the sequence 2n, the truncate before them 2n - 1.
    attempt = pc.divide(pc.add(changes.column("_commit_seq"), 1), 2)
    return is_read, pc.if_else(is_read, attempt, None).cast(pa.int32())


def by_table(changes: pa.RecordBatch) -> Iterator[tuple[TableName, _Rows]]:
    """Yield each table among `changes` (in `CHANGES_SCHEMA`) with the indices of its rows, ascending."""
    if not len(changes):
        return
    schema, table = (changes.column(name).dictionary_encode() for name in ("schema", "table"))
    # One number for each pair of schema and table: a group needs one comparison of integers.
    code = schema.indices.to_numpy() * np.int64(len(table.dictionary)) + table.indices.to_numpy()
    for table_code in np.unique(code).tolist():
        schema_index, table_index = divmod(table_code, len(table.dictionary))
        yield (
            TableName(schema.dictionary[schema_index].as_py(), table.dictionary[table_index].as_py()),
            np.flatnonzero(code == table_code),
        )


def check_truncated(changes: pa.RecordBatch, root_of: Callable[[TableName], TableName | None]) -> None:
    """Raise an error if a partition was truncated alone; `root_of` returns the table of such a partition.

    Raises:
        HeadraceError: SCHEMA_CHANGED.
    """
    for table, _ in by_table(changes.filter(pc.equal(changes.column("op"), Op.TRUNCATE.value))):
        if (root := root_of(table)) is not None:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the partition {table} of {root} was truncated, and no row here says which rows are gone",
                "Start with a new checkpoint and slot, or follow the table with envelope=changes.",
            )


def as_maps(columns: Mapping[str, pa.StringArray], mask: pa.BooleanArray | None = None) -> pa.MapArray:
    """Return the rows of columns of texts as maps; NULL where `mask` is true."""
    width, rows = len(columns), len(next(iter(columns.values())))
    names = pa.array(list(columns), pa.string()).take(pa.array(np.tile(np.arange(width), rows)))
    by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    values = pa.concat_arrays(list(columns.values())).take(pa.array(by_row))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.MapArray.from_arrays(offsets, names, values, mask=mask)


def key_texts(changes: pa.RecordBatch, key: tuple[str, ...], *, checks: bool = True) -> list[pa.StringArray]:
    """Return the keys of one table's changes, column by column: after the change, for a delete before it.

    Raises:
        HeadraceError: REPLICA_IDENTITY, with `checks`, where the log does not carry the key of old rows.
    """
    if checks:
        _check_carried(changes, key)
    before, after = column_texts(changes.column("before"), key), column_texts(changes.column("after"), key)
    return [pc.if_else(after[name].known, after[name].texts, before[name].texts) for name in key]


def _check_carried(changes: pa.RecordBatch, key: tuple[str, ...]) -> None:
    # A partition has a replica identity of its own, which is altered on its own.
    has_old = pc.is_in(changes.column("op"), value_set=pa.array([Op.UPDATE.value, Op.DELETE.value]))
    carried = changes.column(_IDENTITY.name).filter(has_old).drop_null()
    # Nothing is checked where the log has no old rows.
    carried = carried.filter(pc.greater(pc.list_value_length(carried), 0))
    names = carried.flatten()
    for name in key:
        if pc.sum(pc.equal(names, name)).as_py() != (len(carried) or None):
            table = TableName(changes.column("schema")[0].as_py(), changes.column("table")[0].as_py())
            raise uncarried_key(table, name, next(one for one in carried.to_pylist() if name not in one))


def _key(changes: pa.RecordBatch, key: tuple[str, ...], checks: bool) -> pa.MapArray:
    if not key:
        return pa.nulls(len(changes), _ROW)
    emptied = pc.equal(changes.column("op"), Op.TRUNCATE.value)
    return as_maps(dict(zip(key, key_texts(changes, key, checks=checks), strict=True)), emptied)
