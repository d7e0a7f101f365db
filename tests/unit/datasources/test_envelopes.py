"""What does a task make of changes that no element can tell?"""

from __future__ import annotations

import pytest

from headrace.datasources.envelopes import TableDescriptions, to_envelope
from headrace.datasources.options import read_options
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from unit.capture.test_envelope import ORDER, changes

_GIVEN = {"url": "postgresql://localhost/shop", "slot": "s", "tables": "a, b"}
LEAF = TableName("public", "order_2024")


def test_a_partition_that_was_emptied_ends_a_query_of_elements() -> None:
    """All nodes have the label of the whole table, and those of the other partitions live."""
    descriptions = TableDescriptions({}, "shop", {LEAF: ORDER})
    emptied = [changes((LEAF, "t", None, None))]
    with pytest.raises(HeadraceError, match=r"order_2024 of .*order.* was truncated") as caught:
        list(to_envelope(_options("elements"), emptied, descriptions))
    assert caught.value.kind is Kind.SCHEMA_CHANGED
    [rows] = to_envelope(_options("changes"), emptied, descriptions)
    assert rows.column("source").to_pylist()[0]["partition_of"] == str(ORDER)
    [rows] = to_envelope(_options("elements"), [changes((ORDER, "t", None, None))], descriptions)
    assert rows.column("op").to_pylist() == ["truncate"]


def _options(envelope: str) -> CdcOptions:
    return read_options(CdcOptions, {**_GIVEN, "envelope": envelope}, "postgres_cdc")
