"""Documents come out of an answer byte for byte, whatever they hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.opensearch.documents import RawJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 1]), st.booleans())
def test_the_fields_of_an_object_as_they_stand(
    held: dict[str, object], indent: int | None, ascii_: bool
) -> None:
    text = json.dumps(held, indent=indent, ensure_ascii=ascii_)
    walk = RawJson(text)
    found = {key: walk.raw() for key in walk.fields()}
    assert {key: json.loads(raw) for key, raw in found.items()} == held
    assert all(raw in text for raw in found.values())


@given(st.lists(VALUES))
def test_the_items_of_a_list(held: list[object]) -> None:
    walk = RawJson(json.dumps(held))
    assert [walk.value() for _ in walk.items()] == held


def test_a_number_of_any_length_is_passed_over() -> None:
    digits = "9" * 10_000
    walk = RawJson(f'{{"a": {digits}}}')
    assert [walk.raw() for _ in walk.fields()] == [digits]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a"', '{"a":1', '{"a":1]', '{"a" 1}', '{"a":1 "b":2}', "{a:1}"]
)
def test_what_is_no_object_is_an_error(text: str) -> None:
    walk = RawJson(text)
    with pytest.raises(ValueError, match=r"\w"):
        [walk.raw() for _ in walk.fields()]
