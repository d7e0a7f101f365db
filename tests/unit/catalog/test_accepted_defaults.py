"""Which values an index takes in the place of NULL."""

from __future__ import annotations

import pytest

from headrace.catalog.type_check import accepts
from headrace.schema.tree import Scalar


@pytest.mark.parametrize(
    ("kind", "value", "is_taken"),
    [
        ("boolean", True, True),
        ("boolean", "false", True),
        ("boolean", 1, False),
        ("boolean", 0.0, False),
        ("byte", 127, True),
        ("byte", 128, False),
        ("integer", 10**12, False),
        ("integer", 1.5, False),
        ("long", -(2**63), True),
        ("long", 2**63, False),
        ("long", 10**40, False),
        ("long", "nan", False),
        ("unsigned_long", 2**64 - 1, True),
        ("unsigned_long", -1, False),
        ("half_float", 65504, True),
        ("half_float", 65520, False),
        ("float", 3.4e38, True),
        ("float", 1e39, False),
        ("double", 10**400, False),
        ("double", 1.5, True),
        ("double", "nan", False),
        ("double", "sNaN", False),
        ("double", "none", False),
        ("double", True, False),
        ("keyword", 1, True),
    ],
)
def test_a_value_that_the_cluster_would_refuse_is_refused_before(
    kind: str, value: Scalar, *, is_taken: bool
) -> None:
    assert accepts(kind, value) is is_taken
