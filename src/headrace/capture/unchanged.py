"""Which values did the log leave out because an UPDATE did not change them, and where do they come from?

Pure: what is missing is found here; whoever calls brings the values.
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
"""From rows' keys and the names of columns to the rows' texts, by the place of the key; without lost rows."""

LookOf = Callable[[TableName], tuple[KnownTable, Look] | None]
"""What is known of a table, and how its rows are found; None where they cannot be."""


def completed(changes: pa.RecordBatch, look_of: LookOf) -> pa.RecordBatch:
    """The same changes with the values that are found; of a row that is gone they stay absent.

    Args:
        changes: in `CHANGES_SCHEMA`.
        look_of: what is known of a table.

    Raises:
        HeadraceError: what `look_of` raises.
    """
    is_update = pc.equal(changes.column("op"), Op.UPDATE.value)
    if not pc.any(is_update).as_py():
        return changes
    replaced: dict[int, list[tuple[str, str | None]]] = {}
    for table, places in by_table(changes):
        found = look_of(table)
        updates = places[is_update.take(pa.array(places)).to_numpy(zero_copy_only=False)]
        if found is not None and len(updates):
            some = changes.take(pa.array(updates))
            for place, pairs in _of_one_table(some, *found).items():
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
    """The whole new rows of those of `updates` that had gaps and were found, by their place."""
    columns = tuple(table.columns)
    after = updates.column("after")
    short = np.flatnonzero(np.diff(after.offsets.to_numpy()) < len(columns))
    if not len(short):
        return {}
    some = updates.take(pa.array(short))
    known = {name: one.known for name, one in column_texts(some.column("after"), columns).items()}
    missing = tuple(name for name in columns if not pc.all(known[name]).as_py())
    keys = list(zip(*(texts.to_pylist() for texts in key_texts(some, table.key)), strict=True))
    whole = [at for at, one in enumerate(keys) if None not in one]
    found = look([keys[at] for at in whole], missing) if missing else {}
    rows: dict[int, list[tuple[str, str | None]]] = {}
    for place, texts in found.items():
        at = whole[place]
        given = some.column("after")[at].as_py()
        gaps = [
            (name, text) for name, text in zip(missing, texts, strict=True) if not known[name][at].as_py()
        ]
        if gaps:
            rows[int(short[at])] = [*given, *gaps]
    return rows
