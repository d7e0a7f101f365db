"""What is laid out for people says the same as before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.layout import indented, indented_sql

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


def test_a_clause_begins_a_line_and_a_subquery_is_indented() -> None:
    text = "SELECT a, (SELECT max(b) FROM t WHERE c IN ('x FROM y', ')')) FROM u WHERE d = 1"
    assert indented_sql(text).splitlines() == [
        "SELECT a, (",
        "    SELECT max(b)",
        "    FROM t",
        "    WHERE c IN ('x FROM y', ')')",
        "  )",
        "FROM u",
        "WHERE d = 1",
    ]


def test_a_join_that_keeps_rows_is_one_clause() -> None:
    text = "WITH r AS (SELECT a FROM t GROUP BY a) SELECT a FROM r FULL JOIN g ON g.a = r.a"
    assert indented_sql(text).splitlines() == [
        "WITH r AS (",
        "    SELECT a",
        "    FROM t",
        "    GROUP BY a",
        "  )",
        "SELECT a",
        "FROM r",
        "FULL JOIN g ON g.a = r.a",
    ]
