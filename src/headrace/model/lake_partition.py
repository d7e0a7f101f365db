"""Name the partitions of a lake's table: a column, or the year, month, day or hour of one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

Transform = Literal["identity", "year", "month", "day", "hour"]
"""What a partition has of its column's values; `identity`: each value is a partition of its own."""

_CALL = re.compile(r"(\w+)\((.+)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Partition:
    """One level of a table's partitions.

    Attributes:
        column: the column.
        transform: what of its values decides.
    """

    column: str
    transform: Transform = "identity"

    @property
    def name(self) -> str:
        """The column that decides, where a lake has no hidden partitions: `_placed_at_day`."""
        return self.column if self.transform == "identity" else f"_{self.column}_{self.transform}"

    def __str__(self) -> str:
        return self.column if self.transform == "identity" else f"{self.transform}({self.column})"


def parse_partition(text: str) -> Partition:
    """Read a partition as it is written in a deployment file: `country` or `day(placed_at)`.

    Raises:
        ValueError: the text calls something else.
    """
    call = _CALL.fullmatch(text)
    if call is None:
        return Partition(text)
    transforms = [name for name in get_args(Transform) if name != "identity"]
    if call[1] not in transforms:
        raise ValueError(f"{text!r}: write a column's name, or one of {', '.join(transforms)} (COLUMN)")
    return Partition(call[2], cast("Transform", call[1]))
