"""Do first rows that somebody else gives come out as if the table had held them?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from headrace.capture.rows import SnapshotPlace
from headrace.catalog.known import read_known
from headrace.datasources.bootstrap import Custom, JsonLines, ProvidedPart, provider
from headrace.datasources.envelopes import TableDescriptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot
from integration.datasources.driven import Query

ITEM = TableName("public", "item")
_TABLE = """
    CREATE TABLE item (
        id int PRIMARY KEY, price numeric, at timestamptz, tags text[], data json, code char(4)
    )
"""


@pytest.fixture
def shop(database: str) -> str:
    with connect(database) as connection:
        execute(connection, _TABLE)
    return database


class Given:
    """A bootstrap of one's own."""

    def parts(self, tables: Sequence[str]) -> Sequence[Any]:
        return [(table, first) for table in tables for first in (1, 3)]

    def read(self, part: tuple[str, int]) -> Iterable[tuple[str, Mapping[str, object]]]:
        table, first = part
        return [(table, {"id": number, "tags": ["a", None]}) for number in (first, first + 1)]


def read(source: JsonLines | Custom, url: str, where: str | None = None) -> list[dict[str, str | None]]:
    """The rows of all parts, as the log would say them."""
    conditions = {} if where is None else {ITEM: where}
    with ReadSession(url) as session:
        descriptions = TableDescriptions(read_known(session, [ITEM], {}, "given"), "shop", {})
    parts = [
        ProvidedPart(source, one, (), SnapshotPlace(7, 1), descriptions, conditions)
        for one in source.parts(["item"])
    ]
    return [
        dict(row["after"]) for part in parts for batch in part.read(url, None) for row in batch.to_pylist()
    ]


def lines(folder: Path, *rows: object) -> JsonLines:
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return JsonLines(str(file))


def test_values_are_the_servers_own(shop: str, tmp_path: Path) -> None:
    """Every digit of a number, a moment in another zone, an array, JSON as it stands, a padded text."""
    source = lines(
        tmp_path,
        '{"table": "public.item", "row": {"id": 1, "price": 12345678901234567890.10, '
        '"at": "2024-02-29T12:00:00+02:00", "tags": ["a", "\\"q"], "data": {"a": 1.50}, "code": "x"}}',
        "",
        {"table": "item", "row": {"id": 2}},
    )
    assert read(source, shop) == [
        {
            "id": "1", "price": "12345678901234567890.10", "at": "2024-02-29 10:00:00+00",
            "tags": '{a,"\\"q"}', "data": '{"a": 1.50}', "code": "x   ",
        },
        {"id": "2", "price": None, "at": None, "tags": None, "data": None, "code": None},
    ]  # fmt: skip


def test_each_line_of_a_large_file_is_read_once(
    shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.datasources.bootstrap._PART_BYTES", 100)
    source = lines(tmp_path, *({"table": "item", "row": {"id": number}} for number in range(50)))
    assert len(source.parts([])) > 10
    assert [row["id"] for row in read(source, shop)] == [str(number) for number in range(50)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 of .*rows.jsonl is not a row"),
        ('{"row": {}}', "line 2 of .* is not a row: 'table'"),
        ('{"table": "orders", "row": {"id": 1}}', "line 2 of .*: orders is not followed"),
        ('{"table": "item", "row": {"idd": 1}}', "line 2 of .*: item has no column 'idd'.*id"),
        ('{"table": "item", "row": {"id": "x"}}', "line 2 of .* is no row of item: .*integer"),
    ],
)
def test_a_line_that_is_no_row_is_named(shop: str, tmp_path: Path, line: str, said: str) -> None:
    source = lines(tmp_path, {"table": "item", "row": {"id": 1}}, line, {"table": "item", "row": {"id": 2}})
    with pytest.raises(HeadraceError, match=said) as caught:
        read(source, shop)
    assert caught.value.kind is Kind.VALUE


@pytest.mark.parametrize(
    ("where", "ids"), [("id < 3 -- few\n", ["1", "2"]), ("item.id > 3", ["4"]), ("code = 'x'", [])]
)
def test_only_rows_that_are_wanted_are_given(shop: str, where: str, ids: list[str]) -> None:
    assert [row["id"] for row in read(Custom(f"{__name__}:Given"), shop, where)] == ids


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_a_query_with_a_condition_begins_with_the_rows_that_fulfil_it(
    query: Callable[..., Query], tmp_path: Path, envelope: str
) -> None:
    source = lines(tmp_path, *({"table": "item", "row": {"id": number}} for number in (1, 11, 12)))
    for where, count in {"id > 10": 2, "id > 20": 0}.items():
        started = query(envelope=envelope, where=where, bootstrap=source.path)
        started.settle()
        assert len(started.rows) == count


def test_a_class_of_ones_own(shop: str) -> None:
    found = read(Custom(f"{__name__}:Given"), shop)
    assert [row["id"] for row in found] == ["1", "2", "3", "4"]
    assert {row["tags"] for row in found} == {"{a,NULL}"}
    with pytest.raises(HeadraceError, match="no_such_module:Given of the option bootstrap"):
        Custom("no_such_module:Given").parts([])
    with pytest.raises(HeadraceError, match=r"my\.\.rows:Given of the option bootstrap"):
        Custom("my..rows:Given").parts([])
    with pytest.raises(HeadraceError, match=r"absent.jsonl of the option bootstrap cannot be read: No such"):
        JsonLines("/absent.jsonl").parts([])


def test_who_gives_the_rows() -> None:
    assert provider("snapshot") is provider("none") is None
    assert provider("package.module:Name") == Custom("package.module:Name")
    assert provider("file:///data/rows.jsonl") == JsonLines("/data/rows.jsonl")


@pytest.mark.long
def test_a_query_begins_with_them(spark: SparkSession, shop: str, tmp_path: Path) -> None:
    """Then the stream follows; what the table held at the time is not read."""
    source = lines(tmp_path, {"table": "item", "row": {"id": 1, "price": 1.50}})
    with connect(shop) as connection:
        execute(connection, "INSERT INTO item VALUES (9)")
    rows: list[Row] = []
    given = {"url": shop, "slot": "given", "publication": "given", "bootstrap": source.path}
    loaded = spark.readStream.format("postgres_cdc").options(**given).load("public.item")
    writer = loaded.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", (tmp_path / "checkpoint").as_uri()).start()
    try:
        _until(lambda: len(rows) == 1 or not query.isActive)
        with connect(shop) as connection:
            execute(connection, "UPDATE item SET id = 1, price = 2")
        _until(lambda: len(rows) == 3 or not query.isActive)
    finally:
        query.stop()
        with connect(shop) as connection:
            drop_slot(connection, "given", timeout=60)
    assert [(row._change_type, row.id, row.price, row._snapshot) for row in rows] == [
        ("insert", 1, "1.5", True),
        ("delete", 9, None, False),
        ("insert", 1, "2", False),
    ], query.exception()


def _until(condition: Any) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
