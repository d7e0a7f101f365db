"""The bytes of each field are those of the text, whatever its layout and its escapes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.tools.json_sizes import FieldSize, field_sizes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\, é', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('ab"\\é'), inner, max_size=3),
    max_leaves=12,
)


def naive(value: object, path: str, found: dict[str, FieldSize]) -> dict[str, FieldSize]:
    """The same of a parsed value."""
    if isinstance(value, dict):
        if path:
            found.setdefault(path, FieldSize()).objects += 1
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            text = f"{json.dumps(key)}:{json.dumps(inner, separators=(',', ':'))}"
            found.setdefault(below, FieldSize()).size += len(text)
            naive(inner, below, found)
    elif isinstance(value, list):
        for inner in value:
            naive(inner, path, found)
    elif value is not None:
        text = json.dumps(value)
        found[path].values.append((text[1:-1] if isinstance(value, str) else text).encode())
    return found


@given(st.dictionaries(st.sampled_from('ab"\\é'), VALUES, max_size=4))
def test_sizes_are_those_of_a_parsed_document(document: dict[str, object]) -> None:
    expected = naive(document, "", {})
    body = json.dumps(document, separators=(",", ":")).encode()
    assert field_sizes(body, expected.keys()) == expected


def test_white_space_inside_a_value_counts_and_other_fields_do_not() -> None:
    body = b'{"a" : [ 1, {"x": null} ],"b":{"a":2}}'
    assert field_sizes(body, {"a"}) == {"a": FieldSize(len(b'"a" : [ 1, {"x": null} ]'), 1, [b"1"])}
