"""Build the `elements` envelope: changes as nodes of a graph, for continuous queries. Pure.

A node has a reference that never changes, labels, and properties. A change of a row's key deletes one node
and inserts another.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, key_texts
from headrace.catalog.known import KnownTable
from headrace.errors import HeadraceError
from headrace.model.changes import Op
from headrace.model.names import TableName
from headrace.model.types import Json
from headrace.model.value_type import ValueType
from headrace.model.values import column_texts, json_form

_REFERENCE = pa.struct([pa.field("source_id", pa.string()), pa.field("element_id", pa.string())])
_LABELS = pa.list_(pa.field("element", pa.string()))
ELEMENTS_SCHEMA = pa.schema(
    {
        "op": pa.string(),
        "reference": _REFERENCE,
        "labels": _LABELS,
        "effective_from": pa.int64(),
        "properties": pa.string(),
        "_commit_lsn": pa.int64(),
        "_commit_seq": pa.int64(),
    }
)
"""The columns of `envelope=elements`.

`op` is insert, update, delete or truncate (of all nodes with this label: the reference has no `element_id`);
`effective_from` the commit's time (nanoseconds since 1970), 0 for rows that were there before; `properties` a
JSON object, NULL for a delete.
"""

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
_UNQUOTED = frozenset({Json.NUMBER, Json.ITSELF, Json.ARRAY, Json.OBJECT})
_NO_PART = "%N"
_IN_KEY = str.maketrans({"%": "%25", "_": "%5F"})
_IN_LABEL = str.maketrans({"%": "%25", ":": "%3A", ".": "%2E"})

_Row = Mapping[str, str | None]
_Places = npt.NDArray[np.int64]


def label(table: TableName) -> str:
    """Return the label of a table's nodes: its name, with its schema if that is not `public`."""
    return table.name if table.schema == "public" else f"{table.schema}.{table.name}"


def element_id(table: TableName, key: Sequence[str | None]) -> str:
    """Return the id of the row of `table` with this key: `users:12345`, `order_items:1001_5`.

    Ids are unique: `%` and `_` inside a part, and the separators inside a table's name, are percent-encoded,
    and a NULL is `%N`.
    """
    parts = [_NO_PART if part is None else part.translate(_IN_KEY) for part in key]
    return f"{_prefix(table)}:{'_'.join(parts)}"


def _prefix(table: TableName) -> str:
    name = table.name.translate(_IN_LABEL)
    return name if table.schema == "public" else f"{table.schema.translate(_IN_LABEL)}.{name}"


def content_id(table: TableName, row: _Row) -> str:
    """Return the id of a row without a key: a hash of its values, so it is the same after each start.

    Rows with equal values are one node. NULLs are left out, so adding a column changes no id.
    """
    values = sorted((name, value) for name, value in row.items() if value is not None)
    digest = hashlib.sha256(json.dumps([label(table), values]).encode()).digest()
    return f"{_prefix(table)}:{uuid.UUID(bytes=digest[:16])}"


def elements(
    changes: pa.RecordBatch, known: Mapping[TableName, KnownTable], source_id: str
) -> pa.RecordBatch:
    """Convert changes to inserts, updates, deletes and truncates of nodes.

    Args:
        changes: in `CHANGES_SCHEMA`.
        known: the keys and types of the tables among them; a table that is absent has neither.
        source_id: the `source_id` of all references.

    Returns:
        `ELEMENTS_SCHEMA`, in the order of the changes; an update that changes the key is two rows, the
        `delete` first.
    """
    parts, places = [], []
    for table, at in by_table(changes):
        rows, owner = _of_one_table(changes.take(pa.array(at)), table, known.get(table), source_id)
        parts.append(rows)
        places.append(at[owner])
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=ELEMENTS_SCHEMA)
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks().to_batches()[0]


def _of_one_table(
    changes: pa.RecordBatch, table: TableName, known: KnownTable | None, source_id: str
) -> tuple[pa.RecordBatch, _Places]:
    """Return the nodes' rows, and the index of the change that each belongs to."""
    nodes: list[tuple[int, str, str | None]] = []
    old, new = _ids(changes, table, () if known is None else known.key)
    for place, (op, before, after) in enumerate(zip(changes.column("op").to_pylist(), old, new, strict=True)):
        # A node's id is its key: another key is another node.
        if op == Op.UPDATE and before is not None and before != after:
            nodes += [(place, DELETE, before), (place, INSERT, after)]
        else:
            nodes.append((place, _KINDS[op], before if op == Op.DELETE else after))
    owner = np.array([place for place, _, _ in nodes], np.int64)
    kinds, ids = [kind for _, kind, _ in nodes], [id_ for _, _, id_ in nodes]
    rows = len(nodes)
    kind = pa.array(kinds, pa.string())
    taken = changes.take(pa.array(owner))
    moment = pc.multiply(taken.column("_commit_timestamp").cast(pa.int64()), 1000).fill_null(0)
    has_values = np.array([kind_name in (INSERT, UPDATE) for kind_name in kinds], np.bool_)
    properties = _properties(changes, known, table).take(pa.array(owner, mask=~has_values))
    references = [pa.repeat(source_id, rows), pa.array(ids, pa.string())]
    reference = pa.StructArray.from_arrays(references, fields=list(_REFERENCE))
    labels = pa.array([[label(table)]], _LABELS).take(pa.array(np.zeros(rows, np.int64)))
    position = [taken.column("_commit_lsn"), taken.column("_commit_seq")]
    batch = pa.RecordBatch.from_arrays(
        [kind, reference, labels, moment, properties, *position], schema=ELEMENTS_SCHEMA
    )
    return batch, owner


_KINDS = {Op.READ: INSERT, Op.INSERT: INSERT, Op.UPDATE: UPDATE, Op.DELETE: DELETE, Op.TRUNCATE: TRUNCATE}


def _ids(
    changes: pa.RecordBatch, table: TableName, key: tuple[str, ...]
) -> tuple[list[str | None], list[str | None]]:
    """Return the ids before and after each change; None where there is no row, or the log lacks it."""
    if not key:
        sides = (changes.column("before").to_pylist(), changes.column("after").to_pylist())
        old, new = ([None if row is None else content_id(table, dict(row)) for row in side] for side in sides)
        return old, new
    before, after = changes.column("before"), changes.column("after")
    old_texts = column_texts(before, key)
    old_key = [old_texts[name].texts for name in key]
    return _element_ids(table, old_key, before), _element_ids(table, key_texts(changes, key), after)


def _element_ids(table: TableName, key: Sequence[pa.StringArray], side: pa.MapArray) -> list[str | None]:
    keys = zip(*(texts.to_pylist() for texts in key), strict=True)
    return [
        element_id(table, values) if exists else None
        for values, exists in zip(keys, side.is_valid().to_pylist(), strict=True)
    ]


def _properties(changes: pa.RecordBatch, known: KnownTable | None, table: TableName) -> pa.StringArray:
    """Return the new values of each row as one JSON object."""
    after = changes.column("after")
    names = pc.unique(after.keys).to_pylist() if len(after) else []
    types = {} if known is None else known.columns
    ordered = [*(name for name in types if name in names), *(name for name in names if name not in types)]
    texts = column_texts(after, ordered)
    columns = []
    for name in ordered:
        values = _json(types.get(name), f"{table}.{name}", texts[name].texts).fill_null("null")
        pairs = pc.binary_join_element_wise(json.dumps(name, ensure_ascii=False) + ":", values, "")
        columns.append(pc.if_else(texts[name].known, pairs, None))
    if not columns:
        return pa.repeat("{}", len(changes)).cast(pa.string())
    # A row of NULLs alone would be NULL in the result, so each row begins with an empty text.
    joined = pc.binary_join_element_wise("", *columns, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def _json(kind: ValueType | None, column: str, texts: pa.StringArray) -> pa.StringArray:
    """Return values as JSON; text where they do not fit the column's type, as after it was altered."""
    if kind is not None:
        with contextlib.suppress(HeadraceError, ValueError):
            values = json_form(kind, texts, column)
            if kind.json in _UNQUOTED:
                # A number like NaN is JSON to Python alone.
                json.loads(f"[{','.join(values.drop_null().to_pylist())}]", parse_constant=_reject)
            return values
    return pa.array(
        [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts.to_pylist()],
        pa.string(),
    )


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
