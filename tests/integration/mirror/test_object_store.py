"""Does a lake in an object store hold what was written, though requests fail and answers get lost?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from headrace.catalog.types import RowType
from headrace.config.mirror import Format, MirroredTables
from headrace.errors import HeadraceError, Kind
from headrace.mirror.delta import DeltaLake
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.lake import Lake, reaching
from headrace.mirror.net_changes import DELETED
from headrace.mirror.partitions import with_partitions
from headrace.mirror.tables import MirroredTable
from headrace.model.lake_partition import Partition
from headrace.model.names import TableName
from support.lake import FORMATS, lake_at, read_table
from support.object_store import ObjectStore, object_store

ITEMS = TableName("public", "items")
TABLE = MirroredTable(1, RowType(ITEMS, (), {}), (), (), {}, {}, MirroredTables(tables=("public.items",)))
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    yield server
    server.fail("nothing")


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def location(
    kind: Format,
    store: ObjectStore,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A place of the test's own; Iceberg tables are found by a catalog."""
    url = f"{store.url}/{request.function.__name__}/{kind}"
    if kind == "delta":
        return url
    catalog = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": url,
        "S3__ENDPOINT": store.environ["AWS_ENDPOINT_URL"],
        "S3__REGION": store.environ["AWS_REGION"],
    }
    for name, value in catalog.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__STORE__{name}", value)
    # it reads the environment when it is imported
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return "catalog:store"


@pytest.fixture
def lake(kind: Format, location: str) -> Lake:
    """A lake of the test's own, whose one table has two rows."""
    lake = lake_at(location, kind)
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", "b"]}, SCHEMA)
    lake.commit(ITEMS, SCHEMA, lake.write(ITEMS, SCHEMA, [rows]), (1, 0))
    return lake


def merge(lake: Lake, position: int, changes: list[tuple[int, str | None]]) -> None:
    """Merge names by id; None deletes."""
    table = lake.open(ITEMS)
    assert table is not None
    ids, names = zip(*changes, strict=True)
    rows = pa.table({"id": ids, "name": names}, SCHEMA)
    table.merge(
        rows.append_column(DELETED, pa.array([name is None for name in names])), ["id"], (position, 0)
    )


def rows(lake: Lake) -> list[tuple[int, str]]:
    if isinstance(lake, IcebergLake):
        table = lake.open(ITEMS)
        assert table is not None
        return sorted(pl.scan_iceberg(table.table).collect().rows())
    return sorted(read_table(lake.path(ITEMS), "delta").rows())


@pytest.mark.parametrize("kind", ["delta"], indirect=True)
def test_half_of_all_requests_may_fail(lake: Lake, store: ObjectStore) -> None:
    store.fail("half")
    merge(lake, 2, [(1, None), (3, "c")])
    store.fail("nothing")
    assert rows(lake) == [(2, "b"), (3, "c")]


@pytest.mark.parametrize("kind", ["delta"], indirect=True)
def test_a_commit_whose_answer_is_lost_is_a_commit(lake: Lake, store: ObjectStore) -> None:
    store.fail("next-commit")
    merge(lake, 2, [(2, "x")])
    assert rows(lake) == [(1, "a"), (2, "x")]
    table = lake.open(ITEMS)
    assert table is not None
    assert table.position == (2, 0)


def test_a_second_writer_is_refused(lake: Lake) -> None:
    behind = lake.open(ITEMS)
    merge(lake, 2, [(2, "x")])
    assert behind is not None
    new = pa.table({"id": [2], "name": ["stale"], DELETED: [False]})
    with pytest.raises(HeadraceError, match="another program has written") as refused:
        behind.merge(new, ["id"], (3, 0))
    assert refused.value.kind is Kind.CONTINUITY
    assert rows(lake) == [(1, "a"), (2, "x")]


def test_a_store_that_refuses_is_waited_for(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    lake = lake_at(store.url, "delta")
    with pytest.raises(HeadraceError) as error, reaching(lake):
        lake.open(ITEMS)
    assert error.value.kind is Kind.SINK_UNREACHABLE
    assert "testing" not in str(error.value)


def test_a_partitioned_table_is_written_and_changed(store: ObjectStore) -> None:
    """The store's keys have odd texts as Hive's folders have them."""
    lake = DeltaLake(f"{store.url}/partitioned")
    schema = with_partitions(SCHEMA, (Partition("name"),))
    names = ["a b%", "ü/=x", None]
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "name": names}, schema)
    lake.commit(ITEMS, schema, lake.write(ITEMS, schema, [batch]), (1, 0))
    assert rows(lake) == list(zip([1, 2, 3], names, strict=True))
    merge(lake, 2, [(1, "ü/=x"), (3, "ä #")])
    assert rows(lake) == [(1, "ü/=x"), (2, "ü/=x"), (3, "ä #")]
