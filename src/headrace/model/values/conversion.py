"""What comes out of reading a column's text?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import HeadraceError, Kind

Positions = npt.NDArray[np.int64]


def nowhere() -> Positions:
    """No position."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Converted:
    """A typed column.

    Attributes:
        values: of the type's Arrow type; NULL where the text is, and where a value does not fit.
        unfit: the positions of values that the type cannot hold, ascending: a NaN in a decimal, a timestamp
            beyond the year 294246, an array of other dimensions than declared.
    """

    values: pa.Array
    unfit: Positions = field(default_factory=nowhere)


class UnreadableError(ValueError):
    """The text is not what PostgreSQL prints for this type; the message never holds the text itself."""


def unreadable(why: str) -> UnreadableError:
    """The error for a text that no value of the type has."""
    return UnreadableError(why)


def not_read(column: str, type_name: str, error: UnreadableError) -> HeadraceError:
    """What such an error means to the user."""
    return HeadraceError(
        Kind.VALUE,
        f"a value of {column} cannot be read as {type_name}: {error}",
        "Its type was changed after it was looked up: start again.",
    )
