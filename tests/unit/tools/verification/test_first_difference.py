"""Documents are compared as values, and the first difference is named so that it is found."""

import json

import pytest

from headrace.tools.verification.recheck import Difference, first_difference

BEYOND = "1e99999999999999999999"
DEEP = "[" * 100_000 + "]" * 100_000
CUT = "[" * 119 + "…"
SAME = [
    ('{"a":1,"b":[1,2]}', '{"b":[1,2],"a":1}'),
    ('{"a":1.0}', '{"a":1.00}'),
    ('{"a":1}', '{"a":1.0}'),
    ('{"a":1e2}', '{"a":100}'),
    ('{"a":"\\u00fc"}', '{"a":"ü"}'),
    ("{}", " { } "),
    (BEYOND, BEYOND),
    (DEEP, DEEP),
    ('{"a":%s}' % ("9" * 5000), '{"a":%s.0}' % ("9" * 5000)),
]


@pytest.mark.parametrize(("expected", "found"), SAME)
def test_the_same_values_are_no_difference(expected: str, found: str) -> None:
    assert first_difference(expected.encode(), found.encode()) is None


DIFFERENT = [
    ('{"a":1}', '{"a":2}', Difference("a", "1", "2")),
    ('{"a":1}', '{"a":true}', Difference("a", "1", "true")),
    ('{"a":0}', '{"a":false}', Difference("a", "0", "false")),
    ('{"a":1}', '{"a":"1"}', Difference("a", "1", '"1"')),
    ('{"a":null}', "{}", Difference("a", "null", "nothing")),
    ("{}", '{"a":null}', Difference("a", "nothing", "null")),
    ('{"a":[]}', '{"a":{}}', Difference("a", "[]", "{}")),
    ('{"a":[{"b":1.50},{"b":2}]}', '{"a":[{"b":1.5},{"b":3}]}', Difference("a[1].b", "2", "3")),
    ('{"a":[1]}', '{"a":[1,2]}', Difference("a[1]", "nothing", "2")),
    ('{"a":[1,2]}', '{"a":[1]}', Difference("a[1]", "2", "nothing")),
    ('{"a b":{"c":1}}', '{"a b":{"c":2}}', Difference('["a b"].c', "1", "2")),
    ('{"a":0.10000000000000000001}', '{"a":0.1}', Difference("a", "0.10000000000000000001", "0.1")),
    ('{"a":1,"b":1}', '{"b":2,"a":2}', Difference("a", "1", "2")),
    ("{}", "", Difference("", "{}", "nothing")),
    (f'{{"a":{BEYOND}}}', "{}", Difference("", f'{{"a":{BEYOND}}}', "{}")),
    (f'{{"a":{BEYOND}}}', "", Difference("", f'{{"a":{BEYOND}}}', "nothing")),
    (DEEP, f"{DEEP} ", Difference("", CUT, CUT)),
]


@pytest.mark.parametrize(("expected", "found", "difference"), DIFFERENT)
def test_the_first_difference_has_a_path_and_both_values(
    expected: str, found: str, difference: Difference
) -> None:
    assert first_difference(expected.encode(), found.encode()) == difference


def test_long_values_are_cut_and_half_a_character_can_be_printed() -> None:
    difference = first_difference(json.dumps({"a": "x" * 500}).encode(), b'{"a":"\\ud83d"}')
    assert difference is not None
    assert len(difference.expected) == 120
    assert difference.expected.endswith("…")
    assert difference.found.encode() == b'"\\ud83d"'
