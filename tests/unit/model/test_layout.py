"""What is laid out for people says the same as before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.layout import indented

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ANY_JSON)
def test_json_is_laid_out_as_everybody_does(value: object) -> None:
    assert indented(json.dumps(value)) == json.dumps(value, indent=2)


@pytest.mark.parametrize("number", ["1.10", "12345678901234567890.123456789", "1e400", "-0.0"])
def test_no_digit_of_a_number_is_lost(number: str) -> None:
    assert indented(f'{{"a":[{number}]}}') == f'{{\n  "a": [\n    {number}\n  ]\n}}'
