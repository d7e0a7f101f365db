"""Split the maps of the `changes` envelope into columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """One column of many rows, as texts.

    Attributes:
        texts: PostgreSQL's text of each row's value; NULL also where the value is not known.
        known: whether the row has the value; unchanged TOAST values and what the log did not carry are not
            known.
    """

    texts: pa.StringArray
    known: pa.BooleanArray


def column_texts(rows: pa.MapArray | pa.ChunkedArray, names: Sequence[str]) -> Mapping[str, ColumnTexts]:
    """Return the columns `names` of rows in `before` or `after` of the `changes` envelope.

    All rows must be of one table; columns that it does not have are not known.
    """
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks()
    ends = rows.offsets.to_numpy()
    keys = rows.keys.slice(ends[0], ends[-1] - ends[0])
    items = rows.items.slice(ends[0], ends[-1] - ends[0])
    column = pc.index_in(keys, value_set=pa.array(names, pa.string())).fill_null(-1).to_numpy()
    row = np.repeat(np.arange(len(rows)), np.diff(ends))
    wanted = column >= 0
    if rows.null_count:
        wanted &= rows.is_valid().to_numpy(zero_copy_only=False)[row]
    place = np.full((len(names), len(rows)), -1, np.int64)
    place[column[wanted], row[wanted]] = np.flatnonzero(wanted)
    return {name: _taken(items, at) for name, at in zip(names, place, strict=True)}


def _taken(items: pa.StringArray, place: np.typing.NDArray[np.int64]) -> ColumnTexts:
    unknown = place < 0
    return ColumnTexts(items.take(pa.array(place, mask=unknown)), pa.array(~unknown))
