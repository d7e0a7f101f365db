"""The bytes of each field are those of its JSON, whatever its escapes and the document's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.tools.json_sizes import FieldSize, field_sizes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\, é', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('ab"\\é'), inner, max_size=3),
    max_leaves=12,
)


def sizes_of(body: bytes) -> Mapping[str, FieldSize]:
    found = field_sizes(body)
    assert found is not None
    return found


@given(st.dictionaries(st.sampled_from('ab"\\é'), VALUES, max_size=4))
def test_the_sizes_of_a_documents_fields_add_up_to_its_text(document: dict[str, object]) -> None:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    sizes = sizes_of(json.dumps(document, indent=2).encode())
    assert sizes[""].size == len(text.encode())
    for key, value in document.items():
        alone = json.dumps({key: value}, separators=(",", ":"), ensure_ascii=False)
        assert sizes[key].size == len(alone.encode()) - len("{}")


def test_numbers_of_any_length_are_measured_and_only_depth_is_too_much() -> None:
    """PostgreSQL's json has no limit of digits."""
    for number in ("9" * 5000, "1e99999999999999999999", "2.50"):
        found = field_sizes(b'{"a": %s}' % number.encode())
        assert found is not None
        assert (found["a"].values, found[""].size) == ([number], len(number) + len('{"a":}'))
    assert field_sizes(b"[" * 100_000 + b"]" * 100_000) is None


def test_objects_and_values_are_counted_where_they_stand() -> None:
    found = sizes_of('{"a" : [ 1, {"x": null, "y": "é"} ],"b":{"a":2.5}}'.encode())
    assert found["a"] == FieldSize(len('"a":[1,{"x":null,"y":"é"}]'.encode()), 1, ["1"])
    assert (found["a.y"].values, found["b.a"].values, found["a.x"].values) == (["é"], ["2.5"], [])
