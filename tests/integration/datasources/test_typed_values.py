"""Does Spark hold the typed values as the page of types says, the infinities too?"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.model.types import TYPES, TypeRow
from headrace.model.value_type import Attribute, DatabaseType, ValueType, resolve
from headrace.model.values import convert_all

MOMENTS = [
    "infinity",
    "-infinity",
    "0044-03-15 12:00:00{} BC",
    "1969-12-31 23:59:59.999999{}",
    "294246-12-31 00:00:00{}",
]
VALUES = {
    "timestamptz": [text.format("+00") for text in MOMENTS],
    "timestamp": [text.format("") for text in MOMENTS],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "1969-12-31", "294246-12-31"],
    "money": ["$1.50", "-$1,234.50", "$0.00", "-$92,233,720,368,547,758.08", "$92,233,720,368,547,758.07"],
}


@pytest.fixture(scope="module", autouse=True)
def east_of_greenwich(spark: SparkSession) -> Iterator[None]:
    """The session's zone is not that of the values."""
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    assert before is not None
    spark.conf.set(zone, "Asia/Tokyo")
    yield
    spark.conf.set(zone, before)


def kind(row: TypeRow) -> ValueType:
    found = DatabaseType(1, "pg_catalog", row.names[0], "base", extension=row.extension)
    return resolve(Attribute("", 1), {1: found})


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """A column of each named type, with its example or with values at its edge."""
    texts = {row.names[0]: VALUES.get(row.names[0], [row.example] * len(MOMENTS)) for row in TYPES}
    return pa.table(
        {row.names[0]: convert_all(kind(row), pa.array(texts[row.names[0]]), "") for row in TYPES}
    )


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    declared = ", ".join(f"`{row.names[0]}` {kind(row).spark}" for row in TYPES)
    frame = spark.createDataFrame(table, declared)
    frame.createOrReplaceTempView("typed")
    return frame


def test_what_goes_in_comes_out(table: pa.Table, frame: DataFrame) -> None:
    """Through Spark's own rows, not only through its Arrow buffers."""
    found, expected = frame.sort("timestamptz").toArrow(), table.sort_by("timestamptz")
    for name in table.column_names:
        assert plain(found[name]) == plain(expected[name]), name


def plain(values: pa.ChunkedArray) -> str:
    """The values as text; moments as numbers, for Python has no dates so far away."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return str((values.cast(pa.int32()) if pa.types.is_date(values.type) else values).to_pylist())


def test_an_infinity_is_the_documented_value_and_beyond_all_others(
    spark: SparkSession, frame: DataFrame
) -> None:
    """After casts too: at the very end of 64 bits a change of zone would turn it around."""
    ends = {
        "date": "date '{}'",
        "timestamptz": "timestamp '{}T00:00:00Z'",
        "timestamp": "timestamp_ntz '{}T00:00:00'",
    }
    claims = []
    for name, literal in ends.items():
        most, least = literal.format("+294247-01-01"), literal.format("-290000-01-01")
        claims += [f"count_if({name} = {most}) = 1", f"max({name}) = {most}", f"count_if({name} > now()) = 2"]
        claims += [f"count_if({name} = {least}) = 1", f"min({name}) = {least}"]
        for other in ("timestamp", "timestamp_ntz"):
            cast = f"{name}::{other}"
            claims += [f"max({cast}) = max_by({cast}, {name})", f"min({cast}) = min_by({cast}, {name})"]
    [row] = spark.sql(f"SELECT {', '.join(claims)} FROM typed").collect()
    assert [claim for claim, holds in zip(claims, row, strict=True) if not holds] == []
