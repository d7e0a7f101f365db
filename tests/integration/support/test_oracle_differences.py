"""Is every way in which an index can be wrong seen, and told so that a reader finds it?"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from support.shop_oracle import Average, Documents, differences

_DOCUMENT: dict[str, Any] = {
    "id": 7,
    "price": Decimal("1.50"),
    "name": 'quoted " and \\ and\nnewline',
    "active": True,
    "nothing": None,
    "tags": [{"id": 1, "name": "amber"}, {"id": 2, "name": "copper"}],
    "mean": Average(Decimal(10) / 3),
}


def _with(**changes: Any) -> dict[str, dict[str, Any]]:
    return {"7": {**_DOCUMENT, **changes}}


def test_equal_documents_have_no_differences() -> None:
    """1.50 and 1.5 are one number; a mean may differ after its twelfth digit."""
    assert differences(_with(), _with(price=Decimal("1.5"), mean=Decimal("3.3333333333333335"))) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"price": Decimal("1.51")}, "7 price: expected 1.50, found 1.51"),
        ({"price": "1.50"}, "7 price: expected 1.50, found '1.50'"),
        ({"price": Decimal("1.5000000000000001")}, "7 price: expected 1.50, found 1.5000000000000001"),
        ({"active": 1}, "7 active: expected True, found 1"),
        ({"nothing": 0}, "7 nothing: expected None, found 0"),
        ({"extra": None}, "7 extra: expected nothing, found None"),
        ({"tags": [_DOCUMENT["tags"][0]]}, "7 tags.length: expected 2, found 1"),
        (
            {"tags": None},
            "7 tags: expected [{'id': 1, 'name': 'amber'}, {'id': 2, 'name': 'copper'}], found None",
        ),
        ({"mean": Decimal("3.33333")}, "7 mean: expected 3.333333333333333333333333333, found 3.33333"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(changes: dict[str, Any], line: str) -> None:
    assert differences(_with(), _with(**changes)) == [line]


def test_the_order_of_a_list_matters() -> None:
    swapped = list(reversed(_DOCUMENT["tags"]))
    assert differences(_with(), _with(tags=swapped)) == [
        "7 tags[0].id: expected 1, found 2",
        "7 tags[0].name: expected 'amber', found 'copper'",
        "7 tags[1].id: expected 2, found 1",
        "7 tags[1].name: expected 'copper', found 'amber'",
    ]


def test_a_key_that_is_missing_is_not_a_null() -> None:
    found = {key: value for key, value in _DOCUMENT.items() if key != "nothing"}
    assert differences(_with(), {"7": found}) == ["7 nothing: expected None, found nothing"]


def test_missing_and_surplus_documents_are_named_and_the_rest_counted() -> None:
    expected: Documents = {"1": {}, "2": {}, "3": {}}
    actual: Documents = {"3": {}, "4": {}}
    assert differences(expected, actual) == ["1: missing", "2: missing", "4: should not be there"]
    assert differences(expected, actual, limit=1) == ["1: missing", "… and 2 more"]
