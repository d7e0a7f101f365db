"""Offsets: their order, their form in a checkpoint, and which changes they cover."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture import Offset
from headrace.errors import HeadraceError, Kind

lsns = st.integers(0, 2**63 - 1)


@st.composite
def offsets(draw: st.DrawFn) -> Offset:
    lsn = draw(st.integers(0, 2**62))
    if draw(st.booleans()):
        return Offset(lsn)
    return Offset(lsn, lsn + draw(st.integers(0, 2**20)), draw(st.integers(1, 2**40)))


def test_a_place_inside_a_transaction_lies_between_the_commits_around_it() -> None:
    before, first, second, behind = Offset(100), Offset(100, 100, 1), Offset(100, 100, 2), Offset(140)
    assert sorted([behind, second, before, first], key=lambda o: o.order) == [before, first, second, behind]


@given(offsets())
def test_the_stored_form_is_plain_json_and_comes_back(offset: Offset) -> None:
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_stored_form_holds() -> None:
    assert Offset(0x16_B374_D848).to_json() == {"version": 1, "lsn": "16/B374D848"}
    assert Offset(16, 32, 7).to_json() == {"version": 1, "lsn": "0/10", "transaction": "0/20", "sequence": 7}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 2, "lsn": "0/1"},
        {"version": 1},
        {"version": 1, "lsn": "nonsense"},
        {"version": 1, "lsn": 5},
        {"version": 1, "lsn": "0/1", "transaction": "x"},
        {"version": 1, "lsn": "0/1", "transaction": "0/2", "sequence": "many"},
    ],
)
def test_an_offset_of_another_kind_is_refused_with_a_remedy(stored: dict[str, Any]) -> None:
    with pytest.raises(HeadraceError) as raised:
        Offset.from_json(stored)
    assert raised.value.kind is Kind.CONTINUITY
    assert raised.value.remedy


def test_the_version_of_documents_is_the_last_position_that_is_visible() -> None:
    assert Offset(140).version == 140
    assert Offset(100, 200, 5).version == 201
