"""Complete updates with the TOAST values that the log left out because they did not change.

Pure: this module finds what is missing; the caller looks the values up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, key_texts
from headrace.catalog.known import KnownTable
from headrace.model import CHANGES_SCHEMA, Op, TableName
from headrace.model.values import column_texts

Key = tuple[str | None, ...]
Look = Callable[[Sequence[Key], tuple[str, ...]], Mapping[int, tuple[str | None, ...]]]
"""Looks up columns of rows by their keys: the texts by the key's index; deleted rows are absent."""

LookOf = Callable[[TableName], tuple[KnownTable, Look] | None]
"""Returns what is known of a table and the lookup of its rows; None where there is no lookup."""


def completed(changes: pa.RecordBatch, look_of: LookOf) -> pa.RecordBatch:
    """Return the same changes with the values that were found; those of deleted rows stay absent.

    Args:
        changes: in `CHANGES_SCHEMA`.
        look_of: returns the lookup of a table's rows.

    Raises:
        HeadraceError: the errors of `look_of` and of its lookups.
    """
    is_update = pc.equal(changes.column("op"), Op.UPDATE.value)
    if not pc.any(is_update).as_py():
        return changes
    replaced: dict[int, list[tuple[str, str | None]]] = {}
    for table, places in by_table(changes):
        lookup = look_of(table)
        updates = places[is_update.take(pa.array(places)).to_numpy(zero_copy_only=False)]
        if lookup is not None and len(updates):
            selected = changes.take(pa.array(updates))
            for place, pairs in _of_one_table(selected, *lookup).items():
                replaced[int(updates[place])] = pairs
    if not replaced:
        return changes
    after = changes.column("after")
    source = np.arange(len(after))
    source[list(replaced)] = len(after) + np.arange(len(replaced))
    both = pa.concat_arrays([after, pa.array(list(replaced.values()), after.type)])
    number = CHANGES_SCHEMA.get_field_index("after")
    return changes.set_column(number, CHANGES_SCHEMA.field(number), both.take(pa.array(source)))


def _of_one_table(
    updates: pa.RecordBatch, table: KnownTable, look: Look
) -> dict[int, list[tuple[str, str | None]]]:
    """Return the completed new rows of the updates that lacked values and were found, by their index."""
    columns = tuple(table.columns)
    after = updates.column("after")
    short = np.flatnonzero(np.diff(after.offsets.to_numpy()) < len(columns))
    if not len(short):
        return {}
    partial = updates.take(pa.array(short))
    known = {name: texts.known for name, texts in column_texts(partial.column("after"), columns).items()}
    missing = tuple(name for name in columns if not pc.all(known[name]).as_py())
    keys = list(zip(*(texts.to_pylist() for texts in key_texts(partial, table.key)), strict=True))
    whole = [at for at, key in enumerate(keys) if None not in key]
    looked_up = look([keys[at] for at in whole], missing) if missing else {}
    rows: dict[int, list[tuple[str, str | None]]] = {}
    for place, texts in looked_up.items():
        at = whole[place]
        logged = partial.column("after")[at].as_py()
        gaps = [
            (name, text) for name, text in zip(missing, texts, strict=True) if not known[name][at].as_py()
        ]
        if gaps:
            rows[int(short[at])] = [*logged, *gaps]
    return rows
