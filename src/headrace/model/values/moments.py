"""Convert dates and timestamps, as PostgreSQL prints them, to Arrow's.

Arrow parses the years 1 to 9999; this module parses the rest (BC, later years, the infinities). The calendar
is the proleptic Gregorian one, as in PostgreSQL, Arrow and Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.conversion import Converted, UnreadableError, cast, mask_of

_REGULAR = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:\d\d)?)?)?$"
_MOMENT = re.compile(
    r"(\d{4,7})-(\d\d)-(\d\d)"
    r"(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
    r"(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?"
    r"( BC)?",
    re.ASCII,
)
_INFINITE = pa.array(["infinity", "-infinity"])
_DAY = 86_400_000_000  # µs


@dataclass(frozen=True, slots=True)
class MomentBounds:
    """The numbers that represent the infinities; no finite value becomes one of them.

    They keep a distance from the ends of the integer type, so that a change of time zone does not wrap
    around.
    """

    least: int
    greatest: int


def _days(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 to a date; the year 0 is 1 BC.

    The formula lets years begin in March, so that a leap day is the last day of its year.
    """
    year -= month <= 2  # noqa: PLR2004 (February)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


DATE_ENDS = MomentBounds(_days(-290_000, 1, 1), _days(294_247, 1, 1))
"""Days since 1970. PostgreSQL's dates lie between 4714 BC and the year 5874897; the latest do not fit."""
TIMESTAMP_ENDS = MomentBounds(DATE_ENDS.least * _DAY, DATE_ENDS.greatest * _DAY)
"""Microseconds since 1970: the same days, so that an infinite date is cast to an infinite timestamp."""


def dates(texts: pa.StringArray) -> Converted:
    """Convert `date` to days since 1970, the infinities to `DATE_ENDS`; later dates do not fit."""
    return _moments(texts, pa.date32(), DATE_ENDS)


def timestamps(texts: pa.StringArray, arrow: pa.DataType) -> Converted:
    """Convert `timestamp` and `timestamptz` to µs since 1970, the infinities to `TIMESTAMP_ENDS`.

    Later timestamps do not fit.
    """
    return _moments(texts, arrow, TIMESTAMP_ENDS)


def _moments(texts: pa.StringArray, arrow: pa.DataType, ends: MomentBounds) -> Converted:
    """Convert with Arrow where it can; values that it refuses are taken out first, as they are slow."""
    infinite = pc.is_in(texts, _INFINITE)
    all_finite = not pc.any(infinite).as_py()
    try:
        known = pc.cast(texts if all_finite else pc.if_else(infinite, None, texts), arrow)
        odd = np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        # Arrow raises for a whole column because of one value, so the odd ones are taken out.
        regular = pc.fill_null(pc.match_substring_regex(texts, _REGULAR), fill_value=True)
        known, odd = cast(pc.if_else(regular, texts, None), arrow), ~mask_of(pc.or_(regular, infinite))
    if all_finite and not odd.any():
        return Converted(known)
    integer, unit = (pa.int32(), _DAY) if pa.types.is_date(arrow) else (pa.int64(), 1)
    numbers = pc.fill_null(known.cast(integer), 0).to_numpy(zero_copy_only=False).copy()
    for text, end in (("infinity", ends.greatest), ("-infinity", ends.least)):
        numbers[mask_of(pc.fill_null(pc.equal(texts, text), fill_value=False))] = end
    missing, unfit = mask_of(texts.is_null()), []
    for at in np.flatnonzero(odd).tolist():
        moment = _microseconds(texts[at].as_py()) // unit
        if moment < ends.greatest:
            numbers[at] = moment
        else:
            unfit.append(at)
    missing[unfit] = True
    return Converted(pa.array(numbers, integer, mask=missing).cast(arrow), np.array(unfit, np.int64))


def _microseconds(text: str) -> int:
    """Return the microseconds from 1970 to a date or a timestamp."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise UnreadableError("it is no date of PostgreSQL's ISO style")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3, 4, 5, 6))
    # A historical zone may have seconds too: `-00:01:15`.
    east = 1 if match[8] == "+" else -1
    offset = sum(
        int(part or 0) * unit for part, unit in zip(match.group(9, 10, 11), (3600, 60, 1), strict=True)
    )
    seconds = hour * 3600 + minute * 60 + second - east * offset
    days = _days(1 - year if match[12] else year, month, day)
    return days * _DAY + seconds * 1_000_000 + int((match[7] or "").ljust(6, "0"))
