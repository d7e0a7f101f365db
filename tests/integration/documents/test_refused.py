"""What a worker does, by its index's policy, with a document that is refused or cannot be read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.assembly.digests import DigestRanges, Identities, Presence
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import CtidRange
from headrace.pipeline.reconciliation import reconcile
from headrace.pipeline.worker.delivery import SinkConnection
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.task import plan_tasks
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch.documents import document, ids, refresh
from headrace.snapshot.exporting import exported_snapshot
from headrace.state import DeferredKeys, Quarantine, StateKey
from headrace.tools.verification.sides import DatabaseDocuments
from integration.documents.indexed_database import IndexedDatabase

SCHEMA = """\
version: 1
table: thing
primary_key: id
fields:
  - keyword: id
  - custom: host
    postgres: [text]
    opensearch: ip
"""
TABLES = (
    "CREATE TABLE thing (id text PRIMARY KEY, host text)",
    "INSERT INTO thing VALUES ('a', '10.0.0.1'), ('b', '10.0.0.2'), ('c', '10.0.0.3')",
)


class World(IndexedDatabase):
    """Things, some of which no index takes, and a worker that writes them."""

    def __init__(self, url: str, node: str, folder: Path, policy: dict[str, Any]) -> None:
        schema, tables = policy.pop("schema", SCHEMA), policy.pop("tables", TABLES)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in tables:
                connection.execute(statement)
        transform = policy.pop("transform", None)
        super().__init__(url, node, folder, schema, "thing")
        self.spec = replace(self.spec, transform=transform)
        self.generation = self.new_generation()
        plan = self.plan_of(self.generation, key=StateKey("none", self.prefix), **policy)
        self.worker = Worker(Work(plan, self.connections))
        self.quarantine = Quarantine(self.client, StateKey("none", self.prefix))

    def seed(self, version: int, snapshot: str | None = None) -> int:
        """Write everything; how many documents were refused."""
        return len(
            self.worker.backfill(BackfillRange("thing", CtidRange(0, None), version, snapshot)).rejected
        )

    def ids(self) -> set[str]:
        """Of the documents that the index holds."""
        refresh(self.client, self.generation.index)
        return set(ids(self.client, self.generation.index))

    def host(self, identity: str, host: str) -> None:
        self.writer.execute(
            "INSERT INTO thing VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET host = excluded.host",
            (identity, host),
        )

    def empty(self, table: str) -> None:
        """Truncate a table, and apply that."""
        self.writer.execute(f"TRUNCATE {table}".encode())
        end = self.position()
        row = {"schema": "public", "table": table, "op": "t", "_commit_lsn": end, "_commit_seq": 0}
        [task] = plan_tasks([pa.RecordBatch.from_pylist([row], schema=CHANGES_SCHEMA)], end, 1)
        self.worker.apply(task)

    def held(self, identity: str) -> dict[str, Any] | None:
        return document(self.client, self.generation.index, identity)

    def close(self) -> None:
        self.worker.close()
        self.client.call("DELETE", f"/{self.quarantine.index}", allow=(404,))
        super().close()


Make = Callable[..., World]


@pytest.fixture
def make(database: str, opensearch: EmbeddedOpenSearch, tmp_path: Path) -> Iterator[Make]:
    made: list[World] = []

    def world(**policy: Any) -> World:
        made.append(World(database, opensearch.url, tmp_path, policy))
        return made[-1]

    yield world
    for one in made:
        one.close()


def test_a_run_stops_at_it(make: Make) -> None:
    world = make()
    world.host("b", "no address")
    with pytest.raises(HeadraceError, match="the first is 'b'") as caught:
        world.seed(1)
    assert caught.value.kind is Kind.SINK_REJECTED


def test_a_stream_goes_on_and_defers_what_its_index_refuses(make: Make) -> None:
    """What writes deferred documents meets the refusal again; a row that is corrected by then is written."""
    world = make()
    world.seed(1)
    deferred = DeferredKeys(world.client, StateKey("none", world.prefix))
    world.host("b", "no address")
    end = world.position()
    row = {"schema": "public", "table": "thing", "op": "u", "_commit_lsn": end, "_commit_seq": 0}
    change = pa.RecordBatch.from_pylist([{**row, "after": [("id", "b")]}], schema=CHANGES_SCHEMA)
    [task] = plan_tasks([change], end, 1)
    assert world.worker.apply(task).changes == 1
    [waiting] = deferred.oldest(10)
    with pytest.raises(HeadraceError, match="the first is 'b'") as caught:
        world.worker.write_stored([waiting.id])
    assert caught.value.units == {"thing"}
    world.host("b", "10.0.0.22")
    assert world.worker.write_stored([waiting.id]).upserted == 1
    assert deferred.count() == 0
    assert world.held("b") == {"id": "b", "host": "10.0.0.22"}


def test_or_goes_on_without_it(make: Make) -> None:
    world = make(skip_rejected=frozenset({"thing"}))
    world.host("b", "no address")
    assert world.seed(1) == 1
    assert (world.held("a"), world.held("b")) == ({"id": "a", "host": "10.0.0.1"}, None)
    assert world.quarantine.entries() == []


def test_or_keeps_it_with_its_reason_until_it_is_right(make: Make) -> None:
    """Its neighbours are written, its older version stays; an id that cannot be is nobody's but its own."""
    world = make(quarantine={"thing": "keep"})
    world.seed(1)
    world.host("b", "no address")
    world.host("x" * 600, "10.0.0.4")
    world.host("c", "10.0.0.33")
    assert world.seed(2) == 2
    assert world.held("b") == {"id": "b", "host": "10.0.0.2"}
    assert world.held("c") == {"id": "c", "host": "10.0.0.33"}
    long, bad = sorted(world.quarantine.entries(), key=lambda one: one.id != "x" * 600)
    assert "600 bytes" in long.reason
    assert (bad.index, bad.id, bad.position) == ("thing", "b", 2)
    assert "no address" in bad.reason
    world.host("b", "10.0.0.22")
    world.writer.execute("DELETE FROM thing WHERE length(id) > 512")
    world.worker.rewrite_all("thing", 3)
    assert world.held("b") == {"id": "b", "host": "10.0.0.22"}
    assert world.quarantine.entries() == [], "also of what the index never held"


def test_its_older_version_may_be_deleted(make: Make) -> None:
    world = make(quarantine={"thing": "delete"})
    world.seed(1)
    world.host("b", "no address")
    world.seed(2)
    assert world.held("b") is None
    assert [one.id for one in world.quarantine.entries()] == ["b"]
    world.host("b", "10.0.0.2")
    world.seed(3)
    assert world.held("b") == {"id": "b", "host": "10.0.0.2"}
    assert world.quarantine.entries() == []


def test_a_backfill_that_comes_late_puts_nothing_there_that_is_right_by_now(make: Make) -> None:
    world = make(quarantine={"thing": "delete"})
    world.seed(5)
    world.host("b", "no address")
    assert world.seed(4) == 1
    assert world.held("b") == {"id": "b", "host": "10.0.0.2"}
    assert world.quarantine.entries() == []


def test_a_backfill_that_reads_an_older_row_leaves_the_refusal_of_a_newer_one(make: Make) -> None:
    world = make(quarantine={"thing": "keep"})
    with exported_snapshot(world.url) as snapshot:
        world.host("b", "no address")
        assert world.seed(5) == 1
        assert world.seed(4, snapshot) == 0
    assert world.held("b") == {"id": "b", "host": "10.0.0.2"}
    assert [(one.id, one.position) for one in world.quarantine.entries()] == [("b", 5)]
    world.host("b", "10.0.0.22")
    world.seed(6)
    assert world.quarantine.entries() == []


def test_what_is_in_quarantine_is_durable_before_the_task_ends(make: Make) -> None:
    """A cluster that refuses the entry is waited for, and the document counts as not written until then."""
    world = make(quarantine={"thing": "keep"})
    world.host("b", "no address")
    world.quarantine.put([])
    world.client.call("PUT", f"/{world.quarantine.index}", {"settings": {"index.blocks.write": True}})
    free = threading.Timer(
        1.0, world.client.call, ("PUT", f"/{world.quarantine.index}/_settings", {"index.blocks.write": False})
    )
    free.start()
    began = time.monotonic()
    world.seed(1)
    assert time.monotonic() - began >= 0.9
    assert [one.id for one in world.quarantine.entries()] == ["b"]


DIVIDED = """\
version: 1
table: thing
primary_key: id
filters: [{raw: "12 / n > 0"}]
fields:
  - long: n
  - has_many: parts
    table: part
    primary_key: id
    foreign_key: thing
    filters: [{raw: "12 / n > 0"}]
    fields: [{long: id}]
"""
DIVIDED_TABLES = (
    "CREATE TABLE thing (id int PRIMARY KEY, n int)",
    "CREATE TABLE part (id int PRIMARY KEY, thing int, n int)",
    "INSERT INTO thing SELECT i, 1 FROM generate_series(1, 40) AS i",
    "INSERT INTO part SELECT i, i, 1 FROM generate_series(1, 40) AS i",
    "UPDATE thing SET n = 0 WHERE id = 7",
    "UPDATE part SET n = 0 WHERE id IN (23, 40)",
)
KEYS = [(str(one),) for one in range(1, 42)]
UNREADABLE = {"7", "23", "40"}
READABLE = {one for (one,) in KEYS[:40]} - UNREADABLE


def backfilled(world: World) -> int:
    return world.seed(2)


def backfilled_as_of(world: World) -> int:
    with exported_snapshot(world.url) as snapshot:
        return world.seed(2, snapshot)


def written(world: World) -> int:
    return len(world.worker._write({"thing": KEYS}, 2).rejected)


@pytest.mark.parametrize("write", [backfilled, backfilled_as_of, written])
def test_a_row_that_cannot_be_read_costs_its_own_document_only(
    make: Make, write: Callable[[World], int]
) -> None:
    """Nothing but the row says that PostgreSQL will divide by zero."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    assert write(world) == len(UNREADABLE)
    assert world.ids() == READABLE
    reasons = {one.id: one.reason for one in world.quarantine.entries()}
    field = "the field 'parts' of the row of thing"
    zero = "the database says: division by zero (SQLSTATE 22012)"
    assert reasons == {
        "7": f"a condition of the row of thing: {zero}",
        "23": f"{field}: {zero}",
        "40": f"{field}: {zero}",
    }
    world.writer.execute("UPDATE thing SET n = 1; UPDATE part SET n = 1")
    assert len(world.worker._write({"thing": KEYS}, 3).rejected) == 0
    assert world.ids() == READABLE | UNREADABLE
    assert world.quarantine.entries() == []


@pytest.mark.parametrize("write", [backfilled, backfilled_as_of, written])
def test_another_server_that_the_database_asks_holds_up_its_index_alone(
    make: Make, write: Callable[[World], int]
) -> None:
    """As postgres_fdw says it: the session goes on."""
    asked = """CREATE FUNCTION asked(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
               IF n = 1 THEN RETURN 1; END IF;
               RAISE EXCEPTION 'could not connect to server "x"' USING ERRCODE = '08001'; END $$"""
    schema = DIVIDED.replace('{raw: "12 / n > 0"}', '{raw: "public.asked(n) = 1", unsafe: true}')
    world = make(schema=schema, tables=(*DIVIDED_TABLES, asked), quarantine={"thing": "keep"})
    with pytest.raises(HeadraceError, match='could not connect to server "x"') as caught:
        write(world)
    assert caught.value.kind is Kind.LOCKED
    assert caught.value.units == {"thing"}
    world.writer.execute("UPDATE thing SET n = 1")
    world.writer.execute("UPDATE part SET n = 1")
    assert write(world) == 0
    assert len(world.ids()) == 40


def test_what_cannot_be_read_may_be_skipped(make: Make) -> None:
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, skip_rejected=frozenset({"thing"}))
    assert backfilled(world) == written(world) == len(UNREADABLE)
    assert world.ids() == READABLE
    assert world.quarantine.entries() == []


@pytest.mark.parametrize(
    "policy", [{"quarantine": {"thing": "keep"}}, {"skip_rejected": frozenset({"thing"})}]
)
def test_a_truncate_brings_documents_that_were_refused_for_what_is_gone(
    make: Make, policy: dict[str, Any]
) -> None:
    """The index holds none of them, so it cannot tell which ones there are."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, **policy)
    world.seed(2)
    assert world.ids() == READABLE
    world.empty("part")
    assert world.ids() == READABLE | {"23", "40"}


def test_a_truncate_brings_documents_that_a_transform_left_out(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving_out.py").write_text(
        "import json\nimport pyarrow as pa\n\ndef without_parts(batch):\n"
        "    ids, documents = batch.column('id'), batch.column('document').to_pylist()\n"
        "    kept = [None if json.loads(one)['parts'] else one for one in documents]\n"
        "    return pa.table({'id': ids, 'document': pa.array(kept, pa.string())})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    tables = (*DIVIDED_TABLES[:4], "DELETE FROM part WHERE id > 30")
    world = make(schema=DIVIDED, tables=tables, transform="leaving_out:without_parts")
    world.seed(2)
    assert len(world.ids()) == 10
    world.empty("part")
    assert len(world.ids()) == 40


def test_an_index_that_is_closed_when_its_table_is_emptied_waits_alone(make: Make) -> None:
    """Which documents it holds cannot be listed; the batch is done all the same."""
    world = make()
    world.seed(1)
    deferred = DeferredKeys(world.client, StateKey("none", world.prefix))
    world.client.call("POST", f"/{world.generation.index}/_close")
    world.empty("thing")
    [waiting] = deferred.oldest(10)
    with pytest.raises(HeadraceError) as caught:
        world.worker.write_stored([waiting.id])
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset({"thing"}))
    world.client.call("POST", f"/{world.generation.index}/_open?wait_for_active_shards=1")
    world.worker.write_stored([waiting.id])
    assert (world.ids(), deferred.count()) == (set(), 0)


def test_an_index_whose_table_is_locked_waits_alone_where_all_of_it_is_written_again(make: Make) -> None:
    world = make(skip_rejected=frozenset({"thing"}))
    world.seed(1)
    writes: tuple[Callable[[], object], ...] = (
        lambda: world.worker.rewrite_all("thing", 2),
        lambda: world.worker._delete_gone({"thing": [("a",)]}, 2),
    )
    for write in writes:
        with psycopg.connect(world.url) as other:
            other.execute("LOCK TABLE thing")
            with pytest.raises(HeadraceError) as caught:
                write()
        assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset({"thing"}))
    assert world.worker.rewrite_all("thing", 2).upserted == 3


def test_a_plain_sink_loses_what_the_primary_had_refused(make: Make) -> None:
    """It may have taken what the cluster, whose ids it goes by, does not hold."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    world.seed(2)
    key = StateKey("none", world.prefix, "queue")
    mirrors = {"thing": ("gone", world.generation.index)}
    plan = replace(world.worker.work.plan, kind="stdout", key=key, mirrors=mirrors)
    with closing(SinkConnection(Work(plan, world.connections))) as sink:
        assert {id_ for (id_,) in sink.keys("thing")} == READABLE | UNREADABLE


def test_a_plain_sink_waits_for_the_index_that_it_asks(make: Make) -> None:
    """The primary deletes there after it: what it has not asked by then it never hears."""
    world = make()
    world.seed(2)
    index = world.generation.index
    key = StateKey("none", world.prefix, "queue")
    plan = replace(world.worker.work.plan, kind="stdout", key=key, mirrors={"thing": (index,)})
    world.client.call("POST", f"/{index}/_close")
    threading.Timer(1.0, world.client.call, ("POST", f"/{index}/_open?wait_for_active_shards=1")).start()
    with closing(SinkConnection(Work(plan, world.connections))) as sink:
        assert {id_ for (id_,) in sink.keys("thing")} == {"a", "b", "c"}


@pytest.mark.parametrize("write", [backfilled, backfilled_as_of, written])
def test_a_run_stops_at_a_row_that_cannot_be_read_and_names_its_document(
    make: Make, write: Callable[[World], int]
) -> None:
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES)
    world.writer.execute("UPDATE thing SET n = 1")
    world.writer.execute("UPDATE part SET n = 1 WHERE id = 40")
    with pytest.raises(HeadraceError) as caught:
        write(world)
    assert caught.value.kind is Kind.DATABASE
    assert caught.value.cause == (
        "the document '23' of index thing cannot be read for the field 'parts' of the row of thing: "
        "the database says: division_by_zero (SQLSTATE 22012)"
    )
    assert "on_error" in caught.value.remedy


@pytest.mark.long
@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("n = (SELECT s FROM generate_series(n, 1) AS s)", "21000"),
        ("length(repeat('x', 1 + (1 - n) * 1500000000)) > 0", "54000|XX000"),
        ("one_of(n) = 1", "P0003"),
        ("known(n) = 1", "20000"),
        ("named(n) = 1", "2F005"),
        ("projected(n) = 1", "XX000"),
        ("nullif(n, 0)::given = 1", "23502"),
        ("(repeat('[', (1 - n) * 500000) || '1')::jsonb IS NOT NULL", "54001"),
    ],
    ids=["several rows", "too long", "own", "no case", "no return", "internal", "no value", "too deep"],
)
def test_whatever_a_condition_fails_of_costs_the_documents_of_its_rows(
    make: Make, condition: str, state: str
) -> None:
    made = (
        """CREATE FUNCTION one_of(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE found int; BEGIN
           SELECT s INTO STRICT found FROM generate_series(n, 1) AS s; RETURN found; END $$""",
        """CREATE FUNCTION known(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           CASE n WHEN 1 THEN RETURN 1; END CASE; END $$""",
        """CREATE FUNCTION named(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           IF n = 1 THEN RETURN 1; END IF; END $$""",
        """CREATE FUNCTION projected(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
           IF n = 1 THEN RETURN 1; END IF;
           RAISE EXCEPTION 'couldn''t project point (180 -90 0)' USING ERRCODE = 'XX000'; END $$""",
        "CREATE DOMAIN given AS int NOT NULL",
    )
    condition = re.sub("one_of|known|named|projected|given", r"public.\g<0>", condition)
    schema = DIVIDED.replace('{raw: "12 / n > 0"}', f'{{raw: "{condition}", unsafe: true}}')
    world = make(schema=schema, tables=(*DIVIDED_TABLES, *made), quarantine={"thing": "keep"})
    for write in (backfilled, written):
        assert write(world) == len(UNREADABLE)
        assert world.ids() == READABLE
    assert all(re.search(rf"\(SQLSTATE ({state})\)", one.reason) for one in world.quarantine.entries())


def test_digests_tell_what_cannot_be_read(make: Make) -> None:
    """The ranges after it begin where they would have begun."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    plan = world.worker.work.plan
    with ReadSession(world.url) as session:
        for most in (1, 7, 1000):
            ranges = DigestRanges(session, plan.specs["thing"], plan.catalog)
            found = [one for some in iter(lambda: ranges.next(most), []) for one in some]  # noqa: B023
            assert [one.id for one in found] == [id_ for (id_,) in KEYS[:40]]
            assert {one.id for one in found if not one.readable} == UNREADABLE
        world.writer.execute("UPDATE thing SET n = 1; UPDATE part SET n = 1")
        right = {one.id: one for one in DigestRanges(session, plan.specs["thing"], plan.catalog).next(40)}
    assert [one for one in found if one.readable] == [right[one.id] for one in found if one.readable]


def test_what_no_row_is_the_reason_of_is_no_documents_fault(make: Make) -> None:
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    world.writer.execute("ALTER TABLE part DROP COLUMN n")
    with pytest.raises(HeadraceError, match="SQLSTATE 42703"):
        written(world)
    assert world.quarantine.entries() == []


TAGGED = """\
version: 1
table: thing
primary_key: id
fields:
  - long: n
  - many_to_many: tags
    table: tag
    primary_key: id
    through: {table: thing_tag, left_key: thing, right_key: tag}
    filters: [{column: id, op: neq, value: 3}, {raw: "12 / tag.n > 0"}]
    order_by: [{column: n, direction: desc}]
    limit: 2
    fields: [{long: id}]
  - count: kinds
    table: tag
    through: {table: thing_tag, left_key: thing, right_key: tag}
    filters: [{raw: "12 / n > 0"}]
"""
TAGGED_TABLES = (
    "CREATE TABLE thing (id int PRIMARY KEY, n int)",
    "CREATE TABLE tag (id int PRIMARY KEY, n int)",
    "CREATE TABLE thing_tag (thing int, tag int, PRIMARY KEY (thing, tag))",
    "INSERT INTO thing SELECT i, i FROM generate_series(1, 40) AS i",
    "INSERT INTO tag SELECT i, 1 + i % 3 FROM generate_series(1, 20) AS i",
    """INSERT INTO thing_tag SELECT i, 1 + (i * j) % 19
       FROM generate_series(1, 40) AS i, generate_series(1, 5) AS j ON CONFLICT DO NOTHING""",
    "INSERT INTO thing_tag VALUES (7, 20)",
    "VACUUM ANALYZE thing, tag, thing_tag",
)


@pytest.mark.parametrize("write", [backfilled, written])
def test_a_row_costs_the_documents_that_it_belongs_to_only(make: Make, write: Callable[[World], int]) -> None:
    """PostgreSQL tests a condition on all rows of a small table before it looks who they belong to."""
    world = make(schema=TAGGED, tables=TAGGED_TABLES, quarantine={"thing": "keep"})
    assert write(world) == 0
    before = {id_: world.held(id_) for (id_,) in KEYS[:40]}
    world.writer.execute("UPDATE tag SET n = 0 WHERE id = 20")
    assert write(world) == 1
    [entry] = world.quarantine.entries()
    assert (entry.id, "the field 'tags' of the row of thing" in entry.reason) == ("7", True)
    assert {id_: world.held(id_) for (id_,) in KEYS[:40]} == before


def test_a_label_that_was_renamed_is_no_documents_fault(make: Make) -> None:
    """The filter's value is none of its type any more: so says each statement, whatever the rows hold."""
    tables = (
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE thing (id int PRIMARY KEY, mood mood)",
        "INSERT INTO thing SELECT i, 'ok' FROM generate_series(1, 9) AS i",
    )
    schema = DIVIDED.partition("filters")[0] + "filters: [{column: mood, op: eq, value: ok}]\nfields: []\n"
    world = make(schema=schema, tables=tables, quarantine={"thing": "delete"})
    assert (world.seed(1), len(world.ids())) == (0, 9)
    world.writer.execute("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
    with pytest.raises(HeadraceError, match="SQLSTATE 22P02"):
        world.worker._write({"thing": [("1",), ("2",)]}, 2)
    with pytest.raises(HeadraceError, match="SQLSTATE 22P02"):
        world.seed(2)
    plan = world.worker.work.plan
    with ReadSession(world.url) as session, pytest.raises(HeadraceError, match="SQLSTATE 22P02"):
        DigestRanges(session, plan.specs["thing"], plan.catalog).next(10)
    assert (len(world.ids()), world.quarantine.entries()) == (9, [])


def test_a_row_that_a_condition_fails_for_hides_no_other_row(make: Make) -> None:
    """Of a small table PostgreSQL reads all rows, whichever are asked for."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    world.writer.execute("VACUUM ANALYZE thing")
    plan = world.worker.work.plan
    with ReadSession(world.url) as session:
        stamps = Presence(session, plan.specs["thing"], plan.catalog).read([id_ for (id_,) in KEYS]).stamps
    assert set(stamps) == {id_ for (id_,) in KEYS[:40]} - {"7"}


@pytest.mark.parametrize("policy", ["keep", "delete"])
def test_a_key_that_is_written_differently_and_cannot_be_read_leaves_no_old_document(
    make: Make, policy: str
) -> None:
    """1.0 and 1.00 are one numeric key and two ids: the one that no row has is deleted."""
    tables = (
        "CREATE TABLE thing (id numeric PRIMARY KEY, n int)",
        "INSERT INTO thing VALUES (1.0, 1), (2, 1)",
        "CREATE TABLE part (id int PRIMARY KEY, thing numeric, n int)",
    )
    world = make(schema=DIVIDED, tables=tables, quarantine={"thing": policy})
    world.seed(1)
    assert world.ids() == {"1.0", "2"}
    world.writer.execute("UPDATE thing SET id = 1.00, n = 0 WHERE id = 1")
    result = world.worker._write({"thing": [("1.0",), ("1.00",)]}, 2)
    assert {one.id for one in result.rejected} == {"1.00"}
    assert world.ids() == {"2"}
    assert [one.id for one in world.quarantine.entries()] == ["1.00"]
    world.writer.execute("UPDATE thing SET n = 1")
    world.worker._write({"thing": [("1.00",)]}, 3)
    assert world.ids() == {"1.00", "2"}
    assert world.quarantine.entries() == []


def test_the_ids_of_an_index_are_compared_whatever_its_condition_fails_of(make: Make) -> None:
    """What cannot be told of a row is left to its own reading: it costs one document, not the filling."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, skip_rejected=frozenset({"thing"}))
    world.seed(1)
    world.writer.execute("DELETE FROM thing WHERE id = 1")
    world.writer.execute("INSERT INTO thing VALUES (41, 1)")
    plan = world.worker.work.plan

    def mend(found: list[str]) -> None:
        world.worker.rewrite("thing", [(one,) for one in found], 2)

    with ReadSession(world.url) as session:
        identities = Identities(session, plan.specs["thing"], plan.catalog)
        reconcile(identities, world.ids, mend)
    assert world.ids() == READABLE - {"1"} | {"41"}


@pytest.mark.parametrize("one", sorted(UNREADABLE))
def test_what_still_cannot_be_read_is_refused_again_and_nothing_of_it_is_deleted(
    make: Make, one: str
) -> None:
    """As `headrace quarantine retry` builds it, beside the run; its older version was to be kept."""
    world = make(schema=DIVIDED, tables=DIVIDED_TABLES, quarantine={"thing": "keep"})
    world.writer.execute("UPDATE thing SET n = 1; UPDATE part SET n = 1")
    world.seed(1)
    world.writer.execute(DIVIDED_TABLES[-2])
    world.writer.execute(DIVIDED_TABLES[-1])
    plan = world.worker.work.plan
    with ReadSession(world.url) as session:
        database = DatabaseDocuments(session, plan.specs["thing"], plan.catalog)
        refused: dict[str, str] = {}
        made = database.operations([one, "1", "99"], 2, refused)
        look = database.look([one, "1", "99"])
    assert look.unreadable == refused
    assert {each: body is None for each, body in look.documents.items()} == {"1": False, "99": True}
    assert {each.id: each.body is None for each in made} == {"1": False, "99": True}
    assert set(refused) == {one}
    assert "division by zero" in refused[one]


@pytest.mark.parametrize("policy", [{}, {"quarantine": {"thing": "keep"}}])
def test_a_row_without_a_key_is_no_document(make: Make, policy: dict[str, Any]) -> None:
    """A unique index is a key, and lets rows have none; a change of such a row leads nowhere either."""
    tables = (
        "CREATE TABLE thing (id text UNIQUE, host text)",
        "INSERT INTO thing VALUES ('a', '10.0.0.1'), (NULL, '10.0.0.2'), (NULL, '10.0.0.3')",
    )
    world = make(tables=tables, **policy)
    plan = world.worker.work.plan
    assert world.seed(1) == 0
    assert world.ids() == {"a"}
    with ReadSession(world.url) as session:
        spec, catalog = plan.specs["thing"], plan.catalog
        assert reconcile(Identities(session, spec, catalog), world.ids, lambda _: None) == 0
        assert [one.id for one in DigestRanges(session, spec, catalog).next(10)] == ["a"]
        apart = Assembler(session, spec, catalog).assemble_range_by_keys(CtidRange(0, None), 1)
        assert [one.id for one in apart] == ["a"]
