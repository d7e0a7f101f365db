"""The result of converting a column's text, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind

Positions = npt.NDArray[np.int64]


def no_positions() -> Positions:
    """Return an empty array of positions."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted column.

    Attributes:
        values: the values in the type's Arrow type; NULL where the text is NULL, or where a value does not
            fit.
        unfit: the positions of values that the type cannot hold, ascending: a NaN in a decimal, a timestamp
            beyond the year 294246, an array of other dimensions than declared.
    """

    values: pa.Array
    unfit: Positions = field(default_factory=no_positions)


class UnreadableError(ValueError):
    """A text is not what PostgreSQL prints for its type; the message never holds the text."""


def cast(texts: pa.StringArray, arrow: pa.DataType) -> pa.Array:
    """Let Arrow parse texts."""
    try:
        return pc.cast(texts, arrow)
    except pa.ArrowInvalid as error:
        raise UnreadableError(f"it is no {arrow}") from error


def mask_of(values: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return booleans without NULL as a numpy mask."""
    mask: npt.NDArray[np.bool_] = values.to_numpy(zero_copy_only=False).copy()
    return mask


def not_read(column: str, type_name: str, error: UnreadableError) -> HeadraceError:
    """Return the user's error for an `UnreadableError` in a column."""
    remedy = "If its type was altered meanwhile, start again; else read the column as text."
    return HeadraceError(Kind.VALUE, f"a value of {column} cannot be read as {type_name}: {error}", remedy)
