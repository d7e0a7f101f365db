"""Is every mistake of a mirror's options told at once, with table and column?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.catalog.types import RowType
from headrace.config.secret import Secret
from headrace.errors import ErrorGroup
from headrace.mirror.masks import Masks
from headrace.mirror.table_checks import check_options, check_tables
from headrace.mirror.tables import MirroredTable
from headrace.model.lake_partition import parse_partition
from headrace.model.names import TableName
from headrace.model.value_type import Attribute, DatabaseType, resolve

_TYPES = {
    oid: DatabaseType(oid, "pg_catalog", name, "base")
    for oid, name in {23: "int4", 25: "text", 701: "float8", 1082: "date", 1184: "timestamptz"}.items()
}


def table(masks: dict[str, Any], *partition_by: str, **values: Any) -> MirroredTable:
    """A table users (id, name, score, born, seen, _seen_day), whose key is id."""
    columns = {"id": 23, "name": 25, "score": 701, "born": 1082, "seen": 1184, "_seen_day": 25}
    attributes = tuple(Attribute(name, oid) for name, oid in columns.items())
    made = MirroredTable(
        relation=1,
        row_type=RowType(
            TableName("public", "users"), attributes, {one.name: resolve(one, _TYPES) for one in attributes}
        ),
        key=("id",),
        columns=tuple(columns),
        numbers={name: number for number, name in enumerate(columns, 1)},
        defaults={},
        files="1",
        masks=Masks(masks, Secret("salt")),
        partitions=tuple(map(parse_partition, partition_by)),
    )
    return replace(made, **values)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (table({"id": "sha256", "score": "null"}, "day(seen)", columns=("id", "seen", "score")), []),
        (table({}, "id", "name", "month(born)", "hour(seen)", soft_delete=True), []),
        (table({}, "day(_commit_timestamp)", "_change_type", mode="changes"), []),
        (
            table({"email": "redact", "id": "null"}, "x", "day(y)"),
            [
                "masks: the table users has no column email",
                "masks: the column id of users belongs to the key",
                "partition_by: the table users has no column x",
                "partition_by: the table users has no column y",
            ],
        ),
        (
            table({"born": "redact"}, "born", "score", "hour(name)", "seen", "day(seen)"),
            [
                "column born of users is masked",
                "column score of users has a type that allows no partitions",
                "column name of users has a type that allows its name",
                "seen of users has a type that allows year, month",
                "users has a column _seen_day, as the partitions need",
            ],
        ),
        (table({}, "_is_current", mode="history"), ["users has no column _is_current"]),
        (table({}, "id", columns=("id",)), ["all columns of users would be partitions"]),
        (
            table({}, soft_delete=True, key=(), has_full_identity=True),
            ["users has no key: soft_delete needs one"],
        ),
    ],
)
def test_every_mistake_is_told(given: MirroredTable, problems: list[str]) -> None:
    if not problems:
        check_tables([given])
        return
    with pytest.raises(ErrorGroup) as raised:
        check_options([given])
    found = [error.cause for error in raised.value.errors]
    assert len(found) == len(problems), found
    assert all(problem in cause for problem, cause in zip(problems, found, strict=True)), found
