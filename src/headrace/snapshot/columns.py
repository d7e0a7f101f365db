"""In which form does each column travel from the server, and how does it become the value that we promise?

Pure. `docs/types.md` says what a value is; it is defined by the text that PostgreSQL prints. A column travels
in the server's binary form only where ADBC's value equals that text's; all others travel as their text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.types import RowType
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.value_type import ValueType
from headrace.postgres.printing import printed
from headrace.postgres.quoting import identifier

if TYPE_CHECKING:
    from headrace.model.values.moments import MomentBounds

_AS_THEY_ARE = frozenset({16, 17, 19, 20, 21, 23, 25, 114, 700, 701, 1042, 1043})
"""bool, bytea, name, int8, int2, int4, text, json, float4, float8, bpchar, varchar: numbers of pg_type."""
_OID = 26
_MOMENTS = frozenset({1082, 1114, 1184})
"""date, timestamp, timestamptz."""
_CAST_IS_PRINTED = frozenset({790, 1083, 1186, 1266, 1700, 2950, 3802})
"""money, time, interval, timetz, numeric, uuid, jsonb: for these a cast to text is what is printed."""

_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where PostgreSQL counts from

INFINITIES = "SELECT 'infinity'::date, '-infinity'::date, 'infinity'::timestamp, '-infinity'::timestamp"
"""What `knows_infinities` looks at."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How one column travels.

    Attributes:
        sql: what is selected.
        value: makes the values of what comes.
    """

    name: str
    sql: str
    value: Callable[[pa.Array], pa.Array]


def transfers(row_type: RowType, names: tuple[str, ...], *, binary_moments: bool = True) -> list[Transfer]:
    """How the columns called `names` travel, in their order.

    Args:
        row_type: of the table.
        names: of columns that it has.
        binary_moments: whether the infinities are known in binary form.
    """
    types = {one.name: one.type for one in row_type.attributes}
    return [
        _transfer(row_type.table, name, types[name], row_type.columns[name], binary_moments=binary_moments)
        for name in names
    ]


def _transfer(table: TableName, name: str, oid: int, kind: ValueType, *, binary_moments: bool) -> Transfer:
    sql, column = identifier(name), f"{table}.{name}"
    if oid in _AS_THEY_ARE:
        return Transfer(name, sql, lambda found: found)
    if oid == _OID:
        return Transfer(name, f"{sql}::int8", lambda found: found)
    if oid in _MOMENTS and binary_moments:
        return Transfer(name, sql, lambda found: moments(kind, found, column))
    text = f"{sql}::text" if oid in _CAST_IS_PRINTED else printed(sql)
    return Transfer(name, text, lambda found: _converted(kind, found, column))


def _converted(kind: ValueType, texts: pa.Array, column: str) -> pa.Array:
    from headrace.model.values import convert_all  # noqa: PLC0415 - loads slowly; planning needs none

    return convert_all(kind, texts, column)


def knows_infinities(found: pa.RecordBatch) -> bool:
    """Whether the infinities of dates and timestamps come as PostgreSQL's own integers, moved to 1970.

    An addition that wraps around moves them; nobody has promised that.
    """
    expected = [*_ends(32, _DAYS), *_ends(64, _MICROSECONDS)]
    return [int(_integers(column)[0]) for column in found.columns] == expected


def _ends(bits: int, offset: int) -> list[int]:
    """The greatest and the least integer of so many bits, with `offset` added as the processor adds."""
    greatest = 2 ** (bits - 1) - 1
    return [offset - greatest - 2, offset - greatest - 1]


def _integers(found: pa.Array) -> np.typing.NDArray[np.int32 | np.int64]:
    """The numbers of days or microseconds; anything where a value is NULL."""
    integer = pa.int32() if pa.types.is_date32(found.type) else pa.int64()
    plain = pa.Array.from_buffers(integer, len(found), [None, found.buffers()[1]], offset=found.offset)
    numbers: np.typing.NDArray[np.int32 | np.int64] = plain.to_numpy()
    return numbers


def moments(kind: ValueType, found: pa.Array, column: str) -> pa.Array:
    """Dates and timestamps with the infinities that `headrace.model.values.moments` documents.

    Raises:
        HeadraceError: VALUE, a value does not fit.
    """
    from headrace.model.values.moments import DATE_ENDS, TIMESTAMP_ENDS  # noqa: PLC0415 - as above

    ends = DATE_ENDS if pa.types.is_date32(found.type) else TIMESTAMP_ENDS
    integer = pa.int32() if pa.types.is_date32(found.type) else pa.int64()
    least, greatest = pc.min_max(found.cast(integer)).values()
    if least.as_py() is None or (least.as_py() > ends.least and greatest.as_py() < ends.greatest):
        return found
    return _with_ends(kind, found, ends, column).cast(found.type)


def _with_ends(kind: ValueType, found: pa.Array, ends: MomentBounds, column: str) -> pa.Array:
    numbers = _integers(found).copy()
    own = numbers - numbers.dtype.type(_DAYS if pa.types.is_date32(found.type) else _MICROSECONDS)
    limits, known = np.iinfo(numbers.dtype), found.is_valid().to_numpy(zero_copy_only=False)
    positive, negative = own == limits.max, own == limits.min
    unfit = known & ~positive & ~negative & ((numbers >= ends.greatest) | (numbers <= ends.least))
    if unfit.any():
        raise HeadraceError(
            Kind.VALUE,
            f"{int(unfit.sum())} of {len(found)} values of {column} ({kind.name}) "
            f"do not fit into Spark's {kind.spark}",
            "docs/types.md lists which; read the column as text.",
        )
    numbers[positive], numbers[negative] = ends.greatest, ends.least
    return pa.array(numbers, mask=~known)
