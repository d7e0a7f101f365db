"""Who fails alone is held alone."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.stream import held_units
from headrace.pipeline.stream.held_units import HeldUnits
from headrace.state import KeyBatch

UNITS = {"two/users_1": "users_1", "two/items_1": "items_1"}
REFUSED = HeadraceError(Kind.SINK_REJECTED, "refused").concerning(units=["two/users_1"])
LOCKED = HeadraceError(Kind.LOCKED, "locked").concerning(units=["two/items_1"])


def test_what_fails_is_held_until_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_units, "_LOCKED_SECONDS", 0.0)
    held = HeldUnits()
    held.hold(REFUSED, UNITS)
    held.hold(LOCKED, UNITS)
    assert held.among(UNITS) == ["users_1"], "what was locked is tried again"
    assert held.errors == {"two/users_1": REFUSED, "two/items_1": LOCKED}
    held.release()
    assert (held.among(UNITS), held.errors) == ([], {})


def test_what_is_written_is_held_no_longer_while_others_are_deferred() -> None:
    held = HeldUnits()
    held.hold(REFUSED, UNITS)
    held.hold(LOCKED, UNITS)
    held.note_written([KeyBatch("1", "items_1", 16), KeyBatch("2", "gone_1", 16)], UNITS)
    assert held.errors == {"two/users_1": REFUSED}


@pytest.mark.parametrize(
    "error",
    [
        HeadraceError(Kind.INTERNAL, "nobody knows whose"),
        HeadraceError(Kind.SINK_BUSY, "a whole cluster").concerning(units=["two/users_1"]),
        HeadraceError(Kind.SINK_REJECTED, "of another sink").concerning(units=["users_1"]),
    ],
)
def test_what_concerns_more_is_raised(error: HeadraceError) -> None:
    with pytest.raises(HeadraceError) as caught:
        HeldUnits().hold(error, UNITS)
    assert caught.value is error
