"""Names of columns that Spark takes for one are refused before a query begins."""

from __future__ import annotations

import pytest

from headrace.datasources.query_schema import check_distinct
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName

EVENTS = TableName("public", "events")


@pytest.mark.parametrize("names", [["id", "Name", "name"], ["id", "ÉTÉ", "été"], ["ID", "id"]])
def test_columns_that_differ_in_case_alone_are_refused_by_name(names: list[str]) -> None:
    with pytest.raises(HeadraceError, match="events has the columns") as caught:
        check_distinct(EVENTS, names)
    assert caught.value.kind is Kind.USAGE
    assert all(repr(name) in caught.value.cause for name in names[-2:])
    assert "excludeColumns" in caught.value.remedy


def test_other_names_are_columns_of_their_own() -> None:
    check_distinct(EVENTS, ["id", "name", "Names", "e", "é"])
