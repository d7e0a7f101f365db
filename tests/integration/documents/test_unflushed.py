"""What a crash of the server takes back is in no document: `synchronous_commit = off`.

Such a commit is seen before it is on disk. The WAL writer of this server puts it there within seconds only,
so a crash right after it takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.assembly.digests import Identities
from headrace.capture.toast import Reread
from headrace.catalog import read_catalog
from headrace.datasources.postgres_snapshot import PostgresSnapshot
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.model.changes import CHANGES_SCHEMA, DocumentOperation, Op
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import BackfillRange
from headrace.postgres.connection import connect
from headrace.postgres.ddl_plan import SetupPlan, Step, execute_plan
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import Endpoint
from headrace.snapshot.exporting import exported_snapshot
from headrace.testing.memory_sink import MemorySink
from headrace.tools.verification.sides import DatabaseDocuments
from integration.documents.indexed_database import documents_plan
from support.oracle import naive_documents
from support.servers import installation, short_lived_server
from support.shop_oracle import differences
from support.soak.memory_worker import MemoryWorker

INDEX = "people"
SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - integer: id
  - keyword: name
  - has_many: badges
    table: badge
    foreign_key: person_id
    primary_key: id
    fields:
      - integer: id
      - count: stamps
        table: stamp
        foreign_key: badge_id
        primary_key: id
"""
TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text)",
    "CREATE TABLE badge (id int PRIMARY KEY, person_id int)",
    "CREATE TABLE stamp (id int PRIMARY KEY, badge_id int)",
    "INSERT INTO person VALUES (1, 'Ada'), (2, 'Bob')",
    "INSERT INTO badge VALUES (1, 1)",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC",
)
STAMP = "INSERT INTO stamp VALUES (1, 1)"
"""What is committed and on disk, and whose change is applied."""

RENAMED = "UPDATE person SET name = 'nobody' WHERE id = 1"
"""What is committed after that, and not on disk yet; as are all of these."""

LOST_BESIDE_A_BATCH = {
    "a renamed root": RENAMED,
    "a child that is moved away": "UPDATE badge SET person_id = 2 WHERE id = 1",
    "a root that is gone": "DELETE FROM person WHERE id = 1",
}
LOST_IN_A_RANGE = {
    "a root that is gone": "DELETE FROM person WHERE id = 1",
    "a root that is new": "INSERT INTO person VALUES (3, 'nobody')",
    "a table that seems empty": "DELETE FROM person",
}

_WRITER = "SET synchronous_commit = off"
_XMAX = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
_HURRY = "SELECT pg_logical_emit_message(true, 'hurry', '')::text"
_MESSAGES = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"


class StrikingSink(MemorySink):
    """Calls `strike` once, when it holds what it was first given."""

    strike: Callable[[], None] | None = None

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        result = super().write(operations)
        strike, self.strike = self.strike, None
        if strike is not None:
            strike()
        return result


@dataclass
class World:
    """A server that may crash, a database on it, and a worker that writes into memory."""

    server: EmbeddedPostgres
    name: str
    folder: Path
    role: str | None
    crashes: int = 0

    def __post_init__(self) -> None:
        path = self.folder / "people.schema.yml"
        path.write_text(SCHEMA)
        self.spec = load_schema(path, INDEX)
        self.sink = StrikingSink()
        with ReadSession(self.url) as session:
            self.catalog = catalog = read_catalog(session, self.spec.tables())
        plan = documents_plan({INDEX: self.spec}, catalog, {INDEX: INDEX}, large_change=1000)
        work = Work(plan, Endpoints(self._reading_url(), Endpoint(("http://127.0.0.1:9",))))
        self.worker = MemoryWorker(work, self.sink)
        self.seed()

    @property
    def url(self) -> str:
        return self.server.database_url(self.name)

    def _reading_url(self) -> str:
        if self.role is None:
            return self.url
        found = urlsplit(self.url)
        return urlunsplit(found._replace(netloc=f"{self.role}:{self.role}@127.0.0.1:{found.port}"))

    def query(self, *statements: str) -> str:
        """Each in a transaction of its own; the last one's first value."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description is not None else None
        return "" if row is None else str(row[0])

    def position(self) -> Lsn:
        return int(self.query("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"))

    def seed(self) -> None:
        self.worker.backfill(BackfillRange(INDEX, CtidRange(0, None), self.position(), None))

    def stamp(self) -> Callable[[], object]:
        """Commit the stamp; what applies the batch that the log would carry."""
        self.query(STAMP)
        end = self.position()
        change = {
            "_commit_lsn": end,
            "_commit_seq": 0,
            "schema": "public",
            "table": "stamp",
            "op": Op.INSERT.value,
            "after": [("id", "1"), ("badge_id", "1")],
        }
        task = Task(pa.Table.from_pylist([change], schema=CHANGES_SCHEMA), end)
        return lambda: self.worker.apply(task)

    def mended(self) -> Callable[[], object]:
        """What assembles two documents by their keys."""
        return lambda: self.worker.rewrite(INDEX, [("1",), ("2",)], self.position())

    def backfilled_again(self) -> Callable[[], object]:
        """What reads the range of another generation; it holds nothing yet."""
        self.sink.__init__()  # type: ignore[misc]
        return self.seed

    def crash(self) -> None:
        self.crashes += 1
        self.server.kill()
        self.server.start()

    def expected(self) -> dict[str, Any]:
        return naive_documents(self.url, [self.spec])[INDEX]

    def check(self) -> None:
        assert not differences(self.expected(), self.sink.documents(INDEX))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    settings = {"wal_writer_delay": "10s", "autovacuum": "off"}
    with short_lived_server(settings=settings, binaries=installation()) as one:
        with psycopg.connect(one.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        yield one


@pytest.fixture
def make(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Callable[[str | None], World]]:
    worlds: list[World] = []

    def made(role: str | None) -> World:
        name = "unflushed"
        url = server.create_database(name)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in TABLES:
                connection.execute(statement.encode())
            if role is not None:
                for (function,) in connection.execute(_MESSAGES).fetchall():
                    connection.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC".encode())
        worlds.append(World(server, name, tmp_path, role))
        return worlds[-1]

    yield made
    for one in worlds:
        one.worker.close()
        server.drop_database(one.name)


Begin = Callable[[World], Callable[[], object]]
WORK = {"a batch": World.stamp, "keys": World.mended, "a range": World.backfilled_again}
CASES = {
    **{f"a batch, {name}": (World.stamp, lost) for name, lost in LOST_BESIDE_A_BATCH.items()},
    "keys, a root that is gone": (World.mended, LOST_IN_A_RANGE["a root that is gone"]),
    **{f"a range, {name}": (World.backfilled_again, lost) for name, lost in LOST_IN_A_RANGE.items()},
}


@pytest.mark.parametrize("begin", WORK.values(), ids=WORK.keys())
def test_what_is_written_stays(make: Callable[[str | None], World], begin: Begin) -> None:
    """The server crashes as soon as the documents are written."""
    world = make(None)
    work = begin(world)
    world.query(_WRITER, RENAMED)
    before = world.expected()
    world.sink.strike = world.crash
    work()
    assert world.crashes == 1
    assert world.expected() == before
    world.check()


def hold_a_snapshot(world: World) -> None:
    with exported_snapshot(world.url):
        pass


def read_a_table(world: World) -> None:
    options = {"url": world.url, "tables": "public.person"}
    schema = StructType([StructField("id", IntegerType()), StructField("name", StringType())])
    reader = PostgresSnapshot(options).reader(schema)
    for part in reader.partitions():
        assert sum(batch.num_rows for batch in cast("Iterator[pa.RecordBatch]", reader.read(part))) == 2


def read_large_values(world: World) -> None:
    with ReadSession(world.url) as session:
        found = Reread(TableName("public", "person"), {"id": "integer"}).read(session, [("1",)], ["name"])
    assert found == {0: {"name": "nobody"}}


def compare_ids(world: World) -> None:
    with ReadSession(world.url) as session:
        assert Identities(session, world.spec, world.catalog).buckets()


def list_ids(world: World) -> None:
    with ReadSession(world.url) as session:
        assert sorted(Identities(session, world.spec, world.catalog).of(range(1 << 16))) == ["1", "2"]


def repair_a_document(world: World) -> None:
    """Of a row that is not there."""
    with ReadSession(world.url) as session:
        database = DatabaseDocuments(session, world.spec, world.catalog)
        [gone] = database.operations(["7"], world.position(), {})
    assert gone.body is None


READINGS = (hold_a_snapshot, read_a_table, read_large_values, compare_ids, list_ids, repair_a_document)


@pytest.mark.parametrize("read", READINGS, ids=lambda read: read.__name__)
def test_what_is_read_stays(make: Callable[[str | None], World], read: Callable[[World], None]) -> None:
    """By whoever reads rows and passes them on, or what follows from them."""
    world = make(None)
    world.query(_WRITER, RENAMED)
    before = world.expected()
    read(world)
    world.crash()
    assert world.expected() == before


def test_what_is_set_up_stays(make: Callable[[str | None], World]) -> None:
    """Where the database's own default is an asynchronous commit."""
    world = make(None)
    world.query(f"ALTER DATABASE {world.name} SET synchronous_commit = off")
    step = Step(("CREATE PUBLICATION lasting FOR ALL TABLES",), "", "", "", "")
    with connect(world.url) as connection:
        execute_plan(SetupPlan((step,)), connection)
    world.crash()
    assert world.query("SELECT count(*) FROM pg_publication WHERE pubname = 'lasting'") == "1"


@pytest.mark.parametrize(("begin", "lost"), CASES.values(), ids=CASES.keys())
def test_what_was_read_and_is_lost_is_read_again(
    make: Callable[[str | None], World], begin: Begin, lost: str
) -> None:
    """The server crashes while a role that may not hurry it waits; then the commit never happened."""
    world = make("reader")
    work = begin(world)
    before = world.expected()
    world.query(_WRITER, lost)
    xmax = world.query(_XMAX)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        assert until(lambda: done.done() or world.query(_XMAX) != xmax, 30)
        world.crash()
        assert until(lambda: world.query(_HURRY) != "" and done.done(), 60)
        done.result()
    assert world.expected() == before
    world.check()
