"""Find which rows of a batch have one of some keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.python_values import python_values

Places = npt.NDArray[np.int64]


class KeyIndex:
    """Some keys, to be found among many rows.

    Args:
        rows: has each key once.
        key: the key's columns.

    Attributes:
        key: the same.
    """

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self.key = tuple(key)
        self._values: list[pa.Array] = []
        self._codes: list[Places] = []  # of the distinct beginnings of keys, ascending
        code = np.zeros(len(rows), np.int64)
        for name in key:
            column = _comparable(whole(rows.column(name)))
            values = pc.unique(column)
            own = pc.index_in(column, values).to_numpy()
            # Numbered column by column, codes stay small: a product over all columns would leave 64 bits.
            distinct, code = np.unique(code * len(values) + own, return_inverse=True)
            self._values.append(values)
            self._codes.append(distinct)
        self._places = np.empty(len(rows), np.int64)
        self._places[code] = np.arange(len(rows))

    def find(self, batch: pa.RecordBatch) -> Places:
        """Return of each row the place of its key among the keys, -1 where it is none of them."""
        code = np.zeros(len(batch), np.int64)
        found = np.ones(len(batch), np.bool_)
        for name, values, distinct in zip(self.key, self._values, self._codes, strict=True):
            # What none of the keys has is NULL here, and stays not found whatever the other columns say.
            own = pc.index_in(_comparable(batch.column(name)), values)
            found &= own.is_valid().to_numpy(zero_copy_only=False)
            sought = code * len(values) + own.fill_null(0).to_numpy()
            code = np.minimum(np.searchsorted(distinct, sought), len(distinct) - 1)
            found &= distinct[code] == sought if len(distinct) else False
            code = np.where(found, code, 0)
        places: Places = np.where(found, self._places[code] if len(self._places) else -1, -1)
        return places

    def places(self, batch: pa.RecordBatch) -> pa.Array:
        """Return of each row the place of its key among the keys, NULL where it is none of them."""
        found = self.find(batch)
        return pa.array(found, mask=found < 0)

    def bounds(self, name: str) -> pa.Array:
        """Return the distinct values of one of the key's columns, ascending."""
        values = self._values[self.key.index(name)]
        return values.take(pc.sort_indices(values))


def keys_of(rows: pa.RecordBatch | pa.Table, key: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return each row's key, in values that are equal where PostgreSQL's are."""
    return list(zip(*(python_values(rows.column(name)) for name in key), strict=True))


def equal_keys(keys: pa.Table) -> pa.Table:
    """Return keys with 0 in the place of -0: both are the same key to the database."""
    for at, field in enumerate(keys.schema):
        if pa.types.is_floating(field.type):
            keys = keys.set_column(at, field, _without_minus_zero(keys.column(at)))
    return keys


def row_codes(rows: pa.Table) -> Places:
    """Return a number for each row; rows with the same values have the same one."""
    codes = np.zeros(len(rows), np.int64)
    for column in rows.columns:
        encoded = whole(column).dictionary_encode(null_encoding="encode")
        # Numbered again at each column: the product over all columns could exceed 64 bits.
        own = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, codes = np.unique(own, return_inverse=True)
    return codes


def _without_minus_zero(column: Any) -> Any:
    return pc.add(column, pa.scalar(0, column.type))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a table's column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _comparable(column: pa.Array) -> pa.Array:
    """Return values that PyArrow can look up; a nested one as what it shows."""
    if pa.types.is_floating(column.type):
        return _without_minus_zero(column)
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in python_values(column)], pa.string())
    return column
