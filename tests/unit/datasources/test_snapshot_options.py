"""Are the options of `postgres_snapshot` read as they are?"""

from __future__ import annotations

import re

import pytest

from headrace.datasources.options import read_options
from headrace.datasources.source_options import SnapshotOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName

GIVEN = {"url": "postgresql://ann:s3cret@db/shop", "path": "public.users"}


def test_names_are_read_in_any_case_and_sizes_with_units() -> None:
    given = {**GIVEN, "SNAPSHOTID": "00000003-0000001B-1", "batch_bytes": "2m", "Partitionbytes": "16 KB"}
    found = read_options(SnapshotOptions, given, "postgres_snapshot")
    assert (found.table, found.snapshot_id) == (TableName("public", "users"), "00000003-0000001B-1")
    assert (found.batch_bytes, found.partition_bytes) == (2 << 20, 16 << 10)
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("snapshotId", "1; DROP TABLE x", "pg_export_snapshot"),
        ("numPartitions", "0", "greater than 0"),
        ("batchBytes", "-1", "greater than 0"),
        ("path", "public.*", "name one table"),
        ("path", "a, b", "name one table"),
        ("wher", "s3cret", "Did you mean 'where'?"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(option: str, value: str, said: str) -> None:
    with pytest.raises(HeadraceError, match=re.escape(said)) as caught:
        read_options(SnapshotOptions, {**GIVEN, option: value}, "postgres_snapshot")
    assert caught.value.kind is Kind.USAGE
    assert "s3cret" not in str(caught.value)
