"""What does a change look like as nodes of a graph? The `elements` envelope, for continuous queries. Pure.

A node has a reference that never changes, labels, and properties; a change of a row's key is the end of one
node and the beginning of another.
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
from headrace.model import Op, TableName
from headrace.model.types import Json
from headrace.model.value_type import ValueType
from headrace.model.values import column_texts, json_form

_LABELS = pa.list_(pa.field("element", pa.string()))
ELEMENTS_SCHEMA = pa.schema(
    [
        pa.field("op", pa.string()),
        pa.field(
            "reference",
            pa.struct([pa.field("source_id", pa.string()), pa.field("element_id", pa.string())]),
        ),
        pa.field("labels", _LABELS),
        pa.field("effective_from", pa.int64()),
        pa.field("properties", pa.string()),
        pa.field("_commit_lsn", pa.int64()),
        pa.field("_commit_seq", pa.int64()),
    ]
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
    """What the nodes of a table are: its name as it is, with its schema if that is not `public`."""
    return table.name if table.schema == "public" else f"{table.schema}.{table.name}"


def element_id(table: TableName, key: Sequence[str | None]) -> str:
    """The id of the row of `table` with this key: `users:12345`, `order_items:1001_5`.

    No two rows have the same: `%` and `_` inside a part, and what separates the table's name, are
    percent-encoded, and a NULL is `%N`.
    """
    parts = [_NO_PART if part is None else part.translate(_IN_KEY) for part in key]
    return f"{_prefix(table)}:{'_'.join(parts)}"


def _prefix(table: TableName) -> str:
    name = table.name.translate(_IN_LABEL)
    return name if table.schema == "public" else f"{table.schema.translate(_IN_LABEL)}.{name}"


def content_id(table: TableName, row: _Row) -> str:
    """The id of a row that has no key: made of its values, so the same after each start.

    Rows that are the same in every column are one node. NULLs do not count, so that a column that is added
    later changes no id.
    """
    values = sorted((name, value) for name, value in row.items() if value is not None)
    digest = hashlib.sha256(json.dumps([label(table), values]).encode()).digest()
    return f"{_prefix(table)}:{uuid.UUID(bytes=digest[:16])}"


def elements(
    changes: pa.RecordBatch, known: Mapping[TableName, KnownTable], source_id: str
) -> pa.RecordBatch:
    """The changes as what happens to nodes.

    Args:
        changes: in `CHANGES_SCHEMA`.
        known: of every table among them; one that is not has neither key nor types.
        source_id: what all references carry.

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
    """The rows that come out, and of which change each is."""
    op = changes.column("op").to_pylist()
    old, new = _ids(changes, table, () if known is None else known.key)
    moved = [kind == Op.UPDATE and a is not None and a != b for kind, a, b in zip(op, old, new, strict=True)]
    owner = np.repeat(np.arange(len(op)), 1 + np.array(moved, np.int64))
    is_first = np.ones(len(owner), np.bool_)
    is_first[1:] = owner[1:] != owner[:-1]
    kinds, ids = [], []
    for place, first in zip(owner.tolist(), is_first.tolist(), strict=True):
        if moved[place]:
            kinds.append(DELETE if first else INSERT)
            ids.append(old[place] if first else new[place])
        else:
            kinds.append(_KINDS[op[place]])
            ids.append(old[place] if op[place] == Op.DELETE else new[place])
    rows = len(owner)
    kind = pa.array(kinds, pa.string())
    taken = changes.take(pa.array(owner))
    moment = pc.multiply(taken.column("_commit_timestamp").cast(pa.int64()), 1000).fill_null(0)
    has_values = np.array([one in (INSERT, UPDATE) for one in kinds], np.bool_)
    properties = _properties(changes, known, table).take(pa.array(owner, mask=~has_values))
    reference = pa.StructArray.from_arrays(
        [pa.repeat(source_id, rows), pa.array(ids, pa.string())],
        fields=list(ELEMENTS_SCHEMA.field("reference").type),
    )
    labels = pa.array([[label(table)]], _LABELS).take(pa.array(np.zeros(rows, np.int64)))
    position = [taken.column("_commit_lsn"), taken.column("_commit_seq")]
    batch = pa.RecordBatch.from_arrays(
        [kind, reference, labels, moment, properties, *position], schema=ELEMENTS_SCHEMA
    )
    return batch, owner


_KINDS = {
    Op.READ: INSERT,
    Op.INSERT: INSERT,
    Op.UPDATE: UPDATE,
    Op.DELETE: DELETE,
    Op.TRUNCATE: TRUNCATE,
}


def _ids(
    changes: pa.RecordBatch, table: TableName, key: tuple[str, ...]
) -> tuple[list[str | None], list[str | None]]:
    """The ids before and behind each change; None where there was no row, or the log does not say."""
    if not key:
        sides = (changes.column("before").to_pylist(), changes.column("after").to_pylist())
        old, new = ([None if row is None else content_id(table, dict(row)) for row in side] for side in sides)
        return old, new
    old = [None if one is None else element_id(table, one) for one in _keys(changes.column("before"), key)]
    is_there = changes.column("after").is_valid().to_pylist()
    keys = zip(*(texts.to_pylist() for texts in key_texts(changes, key)), strict=True)
    new = [element_id(table, one) if given else None for one, given in zip(keys, is_there, strict=True)]
    return old, new


def _keys(side: pa.MapArray, key: tuple[str, ...]) -> list[tuple[str | None, ...] | None]:
    texts = column_texts(side, key)
    rows = zip(*(texts[name].texts.to_pylist() for name in key), strict=True)
    return [one if given else None for one, given in zip(rows, side.is_valid().to_pylist(), strict=True)]


def _properties(changes: pa.RecordBatch, known: KnownTable | None, table: TableName) -> pa.StringArray:
    """The new values of each row as one JSON object."""
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
    # Rows of NULLs alone would be left out of the result: each begins with an empty text.
    joined = pc.binary_join_element_wise("", *columns, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def _json(kind: ValueType | None, column: str, texts: pa.StringArray) -> pa.StringArray:
    """Values from before a column was altered need not be of the type that it has now: they stay text."""
    if kind is not None:
        with contextlib.suppress(HeadraceError, ValueError):
            found = json_form(kind, texts, column)
            if kind.json in _UNQUOTED:
                json.loads(f"[{','.join(found.drop_null().to_pylist())}]", parse_constant=_refuse)
            return found
    return pa.array(
        [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts.to_pylist()],
        pa.string(),
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
