"""How do values that came in binary form become what the text stands for?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.types import ArrowForm, Json
from headrace.model.value_type import ValueType
from headrace.model.values import convert_all
from headrace.snapshot.reading import moments

DAYS, MICROSECONDS = 10_957, 946_684_800_000_000
DATE = ValueType("date", ArrowForm.DATE, Json.MOMENT, pa.date32())
TIMESTAMP = ValueType("timestamp", ArrowForm.TIMESTAMP, Json.MOMENT, pa.timestamp("us"))


def days(*own: int | None) -> pa.Array:
    """Dates as they come: PostgreSQL's own numbers, moved as the processor adds."""
    moved = [None if one is None else (one + DAYS + 2**31) % 2**32 - 2**31 for one in own]
    return pa.array(moved, pa.int32()).cast(pa.date32())


def microseconds(*own: int | None) -> pa.Array:
    moved = [None if one is None else (one + MICROSECONDS + 2**63) % 2**64 - 2**63 for one in own]
    return pa.array(moved, pa.int64()).cast(pa.timestamp("us"))


def test_the_infinities_are_those_of_the_text() -> None:
    texts = pa.array(["infinity", None, "-infinity", "2000-01-01"])
    assert moments(DATE, days(2**31 - 1, None, -(2**31), 0), "t.c").equals(convert_all(DATE, texts, "t.c"))
    found = microseconds(7, 2**63 - 1, None, -(2**63), 0).slice(1)
    assert moments(TIMESTAMP, found, "t.c").equals(convert_all(TIMESTAMP, texts, "t.c"))


@pytest.mark.parametrize("found", [days(), days(None), days(0, 5), microseconds(), microseconds(1, None)])
def test_finite_values_stay_as_they_are(found: pa.Array) -> None:
    assert moments(DATE if pa.types.is_date(found.type) else TIMESTAMP, found, "t.c") is found


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (DATE, days(0, 2**31 - 2, 107_000_000)),
        (TIMESTAMP, microseconds(2**63 - 2, 0, 9_223_371_331_200_000_000 - MICROSECONDS)),
    ],
)
def test_what_does_not_fit_is_an_error(kind: ValueType, found: pa.Array) -> None:
    with pytest.raises(HeadraceError, match=r"2 of 3 values of t\.c \(\w+\) do not fit") as caught:
        moments(kind, found, "t.c")
    assert caught.value.kind is Kind.VALUE
