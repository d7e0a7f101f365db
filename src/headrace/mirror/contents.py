"""Reduce the changes of a table without a key to how often each content came and went. Pure.

Such a table may have the same row several times. The log has the whole row that was deleted or updated
(REPLICA IDENTITY FULL); which of the equal rows it was makes no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import PREFIX
from headrace.mirror.digests import hashes
from headrace.mirror.net_changes import behind_truncate
from headrace.mirror.python_values import arrow_rows, python_rows
from headrace.model.names import TableName

_TYPE, _UNCHANGED = PREFIX + "change_type", PREFIX + "unchanged"
_GONE = frozenset({"delete", "update_preimage"})


@dataclass(frozen=True, slots=True)
class ContentChanges:
    """What some changes leave.

    Attributes:
        added: the rows that came, each as often as it came.
        removed: the rows that went, in the same way; none is among `added`.
        emptied: whether the table was truncated: no other row is left.
    """

    added: pa.Table
    removed: pa.Table
    emptied: bool


def content_changes(rows: pa.Table) -> ContentChanges:
    """Reduce `rows`, at least one, to the contents that came and went.

    Args:
        rows: in the schema of a `RowShape` with the prefix `PREFIX` and `pre_images`, by ascending position.
    """
    rows, emptied = behind_truncate(rows)
    own = [name for name in rows.column_names if not name.startswith(PREFIX)]
    number: Counter[str] = Counter()
    contents: dict[str, dict[str, Any]] = {}
    before: dict[str, Any] = {}
    kinds, unchanged = (rows.column(name).to_pylist() for name in (_TYPE, _UNCHANGED))
    for kind, absent, row in zip(kinds, unchanged, python_rows(rows.select(own)), strict=True):
        # What an update left out, its row before has, which stands right before it.
        row |= {name: before[name] for name in absent or ()}
        content = repr(row)
        contents[content] = before = row
        number[content] += -1 if kind in _GONE else 1
    schema = rows.select(own).schema
    added = [contents[content] for content in (+number).elements()]
    removed = [contents[content] for content in (-number).elements()]
    return ContentChanges(arrow_rows(added, schema), arrow_rows(removed, schema), emptied)


def without(table: TableName, rows: Iterable[pa.RecordBatch], removed: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows without those that were removed, each of which must be there.

    Raises:
        HeadraceError: CONTINUITY: one of them is not.
    """
    # Hashes choose the few rows that may be meant; what they show decides.
    left = Counter(map(repr, python_rows(removed)))
    names = removed.column_names
    wanted = np.concatenate([hashes(batch, names) for batch in removed.to_batches()])
    for batch in rows:
        kept = np.ones(len(batch), np.bool_)
        alike = np.flatnonzero(np.isin(hashes(batch, names), wanted))
        for place, row in zip(alike, python_rows(batch.select(names).take(pa.array(alike))), strict=True):
            content = repr(row)
            if left[content] > 0:
                left[content] -= 1
                kept[place] = False
        yield batch.filter(pa.array(kept))
    missing = +left
    if missing:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the lake's table {table} lacks a row that was deleted: {next(iter(missing))}",
            "Run `headrace mirror --reload`: it reads all tables again.",
        )
