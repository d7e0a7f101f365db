"""Which failures does a run try again after?"""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.run import _may_pass


@pytest.mark.parametrize(
    ("kind", "fifth", "hundredth"),
    [
        (Kind.CONNECTION, True, True),
        (Kind.SLOT_IN_USE, True, True),
        (Kind.NO_FREE_SLOT, True, True),
        (Kind.SPARK, True, False),
        (Kind.CONTINUITY, False, False),
        (Kind.SLOT_LOST, False, False),
        (Kind.SLOT_UNKNOWN, False, False),
    ],
)
def test_waiting_goes_on_for_ever_where_it_helps(kind: Kind, fifth: bool, hundredth: bool) -> None:
    error = HeadraceError(kind, "it failed")
    assert (_may_pass(error, 5), _may_pass(error, 100)) == (fifth, hundredth)
