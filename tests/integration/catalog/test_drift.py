"""Which alterations of a table end a run, and which do not? As the catalog alone tells it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.catalog import read_catalog
from headrace.catalog.differences import PartChange, came_with_rows
from headrace.catalog.fingerprint import Fingerprint, PartPrint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.usage import used_columns
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from support.catalog_watch import CatalogWatch

SHOP, LINE, EVENT = (TableName("public", name) for name in ("shop", "line", "event"))
DDL = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE place AS (town text, zip text);
CREATE TABLE shop (id int PRIMARY KEY, name text NOT NULL, mood mood, place place, price numeric(10,2),
                   spare text, owner text, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE line (id int PRIMARY KEY, shop_id int NOT NULL, note text);
CREATE UNIQUE INDEX line_identity ON line (shop_id, id);
ALTER TABLE line REPLICA IDENTITY USING INDEX line_identity;
CREATE TABLE event (shop_id int, day int, what text, PRIMARY KEY (shop_id, day)) PARTITION BY RANGE (day);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20);
INSERT INTO shop VALUES (1, 'a', 'ok', ('x', 'y'), 1.5);
INSERT INTO line VALUES (1, 1, 'n');
INSERT INTO event VALUES (1, 1, 'w'), (1, 11, 'w');
CREATE PUBLICATION p FOR TABLE shop, line, event
"""
SCHEMA = """
version: 1
table: shop
primary_key: id
filters: [{ raw: "owner IS DISTINCT FROM 'nobody'" }]
fields:
  - keyword: name
  - enum: mood
  - integer: twice
  - custom: place
    postgres: [place]
    opensearch: keyword
  - decimal: price
  - count: lines
    table: line
    foreign_key: shop_id
  - count: events
    table: event
    foreign_key: shop_id
"""
ENDING = {
    "ALTER TABLE shop DROP COLUMN price": "the column price of the table shop is gone",
    "ALTER TABLE shop RENAME price TO cost": "the column price of the table shop is called cost now",
    "ALTER TABLE shop ALTER price TYPE numeric(12,3)": "was numeric(10,2), and is numeric(12,3) now",
    "ALTER TABLE shop ALTER name TYPE text USING name || '!'": "its values may have changed",
    'ALTER TABLE shop ALTER name TYPE text COLLATE "C"': 'are of (collation: "C") now',
    "ALTER TABLE shop DROP price; ALTER TABLE shop ADD price numeric(10,2)": "dropped and added again",
    "ALTER TABLE shop RENAME owner TO keeper": "the column owner of the table shop is called keeper now",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'": "made of (public.mood: 'sad', 'ok'), and are of",
    "ALTER TYPE mood RENAME TO feeling": "are of (public.feeling: 'sad', 'ok') now",
    "ALTER TYPE place RENAME ATTRIBUTE zip TO code": "code text",
    "ALTER TABLE shop DROP twice; ALTER TABLE shop ADD twice int": "twice of the table shop",
    "ALTER TABLE line RENAME TO lines": "the table line is gone",
    "DROP TABLE line": "the table line is gone",
    "DROP TABLE line; CREATE TABLE line (id int PRIMARY KEY, shop_id int)": "line was dropped and created",
    "ALTER PUBLICATION p DROP TABLE line; ALTER TABLE line SET UNLOGGED": "line is unlogged now",
    "ALTER PUBLICATION p DROP TABLE line": "the table line has left the publication",
    "ALTER PUBLICATION p DROP TABLE line; ALTER PUBLICATION p ADD TABLE line": "line has left",
    "DROP PUBLICATION p": "the publication is gone",
    "ALTER PUBLICATION p SET (publish = 'insert')": "published insert, update, delete, truncate",
    "ALTER PUBLICATION p SET (publish_via_partition_root = true)": "publish_via_partition_root",
    """CREATE TABLE more (LIKE event); INSERT INTO more VALUES (1, 25, 'w');
       ALTER TABLE event ATTACH PARTITION more DEFAULT""": "more was attached to event with rows in it",
    """BEGIN; CREATE TABLE more (LIKE event); INSERT INTO more VALUES (1, 25, 'w');
       ALTER TABLE event ATTACH PARTITION more DEFAULT; COMMIT""": "more was attached to event with rows",
}
_ALL = "insert, update, delete, truncate"
UNDONE = {
    "ALTER TABLE line RENAME TO x; DELETE FROM x; ALTER TABLE x RENAME TO line": "line was called otherwise",
    "CREATE SCHEMA s; ALTER TABLE line SET SCHEMA s; ALTER TABLE s.line SET SCHEMA public": "is back",
    "ALTER TABLE event RENAME TO x; ALTER TABLE x RENAME TO event": "the table event was called otherwise",
    f"""ALTER PUBLICATION p SET (publish = 'insert'); UPDATE line SET shop_id = 2;
        ALTER PUBLICATION p SET (publish = '{_ALL}')""": "the publication was altered",
    "ALTER PUBLICATION p RENAME TO q; DELETE FROM line; ALTER PUBLICATION q RENAME TO p": "was altered",
    f"ALTER PUBLICATION p SET (publish = '{_ALL}')": "the publication was altered",
    """ALTER TABLE event DETACH PARTITION event_2; INSERT INTO event_2 VALUES (1, 12, 'w');
       ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20)""": "event_2 was attached",
    """BEGIN; ALTER TABLE event DETACH PARTITION event_2; DELETE FROM event_2;
       INSERT INTO event_2 VALUES (1, 12, 'w');
       ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20); COMMIT""": "with rows in it",
    "ALTER TABLE event_1 SET UNLOGGED; UPDATE event_1 SET what = 'x'; ALTER TABLE event_1 SET LOGGED": (
        "event_1 was rewritten, and may have been unlogged"
    ),
    """BEGIN; ALTER TABLE event_1 SET UNLOGGED; DELETE FROM event_1; ALTER TABLE event_1 SET LOGGED;
       COMMIT""": "event_1 was rewritten, and may have been unlogged",
    "CREATE UNLOGGED TABLE more PARTITION OF event DEFAULT": "more is unlogged now",
    "ALTER TABLE event_1 SET UNLOGGED": "event_1 is unlogged now",
    "CREATE TABLE heir () INHERITS (line); DROP TABLE heir": "other tables inherit from line",
    "ALTER TYPE mood RENAME VALUE 'ok' TO 'x'; ALTER TYPE mood RENAME VALUE 'x' TO 'ok'": "altered back",
    "ALTER TYPE place RENAME ATTRIBUTE zip TO x; ALTER TYPE place RENAME ATTRIBUTE x TO zip": "altered back",
    """CREATE TABLE branch (LIKE event INCLUDING ALL) PARTITION BY RANGE (day);
       CREATE TABLE twig PARTITION OF branch DEFAULT; INSERT INTO branch VALUES (1, 25, 'w');
       ALTER TABLE event ATTACH PARTITION branch DEFAULT""": "twig was attached to event with rows in it",
}
"""Altered and altered back; what the catalog shows is as it was."""
SINCE_15 = {
    "ALTER PUBLICATION p SET TABLE shop (id, name), line, event": "shop has left the publication",
    "ALTER PUBLICATION p SET TABLE shop WHERE (id > 1), line, event": "shop has left the publication",
}
SINCE_17 = {"ALTER TABLE shop ALTER twice SET EXPRESSION AS (id * 3)": "made of (generated: (id * 2))"}
WEAKENING = [
    "ALTER TABLE line REPLICA IDENTITY DEFAULT",
    "ALTER TABLE line REPLICA IDENTITY NOTHING",
    "DROP INDEX line_identity",
    "ALTER TABLE event_1 REPLICA IDENTITY NOTHING",
]
HARMLESS = [
    "ALTER TABLE shop DROP COLUMN spare",
    "ALTER TABLE shop RENAME spare TO other",
    "ALTER TABLE shop ALTER spare TYPE varchar(10)",
    "ALTER TABLE shop ADD COLUMN more int DEFAULT 7",
    "ALTER TABLE line DROP COLUMN note",
    "VACUUM FULL shop",
    "TRUNCATE shop",
    "TRUNCATE event",
    "ALTER TABLE shop ALTER name SET STATISTICS 500",
    "ALTER TABLE line REPLICA IDENTITY FULL",
    "CREATE INDEX ON line (note)",
    "ALTER PUBLICATION p SET TABLE line, event, shop",
    "GRANT SELECT ON shop, line, event, event_1 TO PUBLIC; GRANT SELECT (price) ON shop TO PUBLIC",
    "GRANT USAGE ON SCHEMA public TO PUBLIC; COMMENT ON TABLE line IS 'x'; COMMENT ON PUBLICATION p IS 'x'",
    "CREATE INDEX ON event (what); ANALYZE; VACUUM; VACUUM FREEZE; REINDEX TABLE line",
    "GRANT SELECT (name) ON shop TO PUBLIC; VACUUM FULL shop",
    "VACUUM FULL event_1; CLUSTER event_2 USING event_2_pkey; CLUSTER line USING line_pkey",
    "ALTER TABLE line ADD CHECK (id > 0); ALTER TABLE event_1 SET (autovacuum_enabled = off)",
    "ALTER TABLE line SET (fillfactor = 50); ALTER TABLE line ALTER note SET DEFAULT 'x'",
    """CREATE TRIGGER t BEFORE UPDATE ON line FOR EACH ROW
       EXECUTE FUNCTION suppress_redundant_updates_trigger(); ALTER TABLE line DISABLE TRIGGER t""",
    "ALTER TABLE event_1 RENAME TO x; ALTER TABLE x RENAME TO event_1",
    "CREATE SCHEMA archive; ALTER TABLE event_1 SET SCHEMA archive",
    "ALTER TABLE line REPLICA IDENTITY FULL; ALTER TABLE line REPLICA IDENTITY USING INDEX line_identity",
    "TRUNCATE event_1; INSERT INTO event VALUES (1, 2, 'w')",
    "CREATE TABLE other (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE other",
    "CREATE TABLE more PARTITION OF event DEFAULT; INSERT INTO event VALUES (1, 25, 'w')",
    "BEGIN; CREATE TABLE more PARTITION OF event DEFAULT; INSERT INTO event VALUES (1, 25, 'w'); COMMIT",
    """CREATE TABLE more (LIKE event INCLUDING ALL); ALTER TABLE event ATTACH PARTITION more DEFAULT;
       INSERT INTO event VALUES (1, 25, 'w')""",
]


def _short(text: str) -> str:
    return text.split("\n", maxsplit=1)[0][:60]


class World:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.connection: Connection = connect(url)
        self.sql(DDL)
        (folder / "shops.schema.yml").write_text(SCHEMA)
        spec = load_schema(folder / "shops.schema.yml", "shops")
        with ReadSession(url) as session:
            usage = used_columns([spec], read_catalog(session, spec.tables()))
            baseline = read_fingerprint(session, usage, "p")
        self.watch = CatalogWatch(url, usage, "p")
        self.watch.look()
        self.kept = Fingerprint.from_text(baseline.to_text())
        assert (self.kept.tables, self.kept.publication) == (baseline.tables, baseline.publication)

    def sql(self, text: str) -> None:
        for statement in text.split(";"):
            execute(self.connection, statement)


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    world = World(database, tmp_path)
    yield world
    world.watch.close()
    world.connection.close()


def ends(world: World, statements: str, said: str, kind: Kind) -> None:
    world.sql(statements)
    with pytest.raises(HeadraceError) as caught:
        world.watch.look()
    assert caught.value.kind is kind
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize(("statements", "said"), [*ENDING.items(), *UNDONE.items()], ids=_short)
def test_what_documents_depend_on_is_altered(world: World, statements: str, said: str) -> None:
    ends(world, statements, said, Kind.SCHEMA_CHANGED)


@pytest.mark.parametrize(("statements", "said"), [*SINCE_15.items(), *SINCE_17.items()], ids=_short)
def test_also_what_only_newer_servers_can(world: World, statements: str, said: str) -> None:
    since = 150000 if statements in SINCE_15 else 170000
    if world.connection.info.server_version >= since:
        ends(world, statements, said, Kind.SCHEMA_CHANGED)


@pytest.mark.parametrize("statements", WEAKENING, ids=_short)
def test_a_weakened_identity_is_another_catalog(world: World, statements: str) -> None:
    """So the run inspects the database again, which says whether the identity still covers what is needed."""
    before = world.watch.baseline
    world.sql(statements)
    world.watch.look()
    assert world.watch.baseline.tables != before.tables


@pytest.mark.long
@pytest.mark.parametrize("statements", HARMLESS, ids=_short)
def test_what_no_document_depends_on_ends_nothing(world: World, statements: str) -> None:
    world.sql(statements)
    world.watch.look()
    world.watch.look()
    assert not world.watch.emptied


MOVING = {
    "ALTER TABLE event DETACH PARTITION event_2": {EVENT},
    "DROP TABLE event_1": {EVENT},
    "CREATE TABLE more PARTITION OF event DEFAULT": set(),
    """TRUNCATE event_2; ALTER TABLE event DETACH PARTITION event_2;
       ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20)""": {EVENT},
}


@pytest.mark.parametrize(("statements", "emptied"), MOVING.items(), ids=MOVING)
def test_partitions_come_and_go(world: World, statements: str, emptied: AbstractSet[TableName]) -> None:
    """No reason to end, but one to read what exists anew: the log says nothing of the rows that go."""
    world.sql(statements)
    world.watch.look()
    world.watch.look()
    assert world.watch.emptied == emptied


def test_rows_of_a_later_transaction_that_ended_before_the_attachment_count(world: World) -> None:
    """Its xid is higher, although its rows are older."""
    world.sql("CREATE TABLE more (LIKE event INCLUDING ALL)")
    with connect(world.url, autocommit=False) as attaching:
        execute(attaching, "UPDATE line SET note = 'has an xid from here on'")
        world.sql("INSERT INTO more VALUES (1, 25, 'w')")
        execute(attaching, "ALTER TABLE event ATTACH PARTITION more DEFAULT")
        attaching.commit()
    ends(world, "SELECT 1", "more was attached to event with rows in it", Kind.SCHEMA_CHANGED)


def test_a_role_that_may_read_only_the_whole_table_finds_older_rows(world: World) -> None:
    world.sql(
        "CREATE ROLE only_roots LOGIN PASSWORD 'only'; GRANT SELECT ON event TO only_roots;"
        "CREATE TABLE more (LIKE event); INSERT INTO more VALUES (1, 25, 'w');"
        "ALTER TABLE event ATTACH PARTITION more DEFAULT"
    )
    url = urlsplit(world.url)
    place = f"{url.hostname}:{url.port}{url.path}"
    try:
        with ReadSession(f"postgresql://only_roots:only@{place}") as session:
            for name, is_older in (("more", True), ("event_1", False)):
                [(oid,)] = session.query(f"SELECT 'public.{name}'::regclass::oid::bigint")
                part = PartPrint(TableName("public", name), "d", None, 0, "p")
                assert came_with_rows(session, PartChange(EVENT, oid, part)) == is_older
    finally:
        world.sql("DROP OWNED BY only_roots; DROP ROLE only_roots")


def test_a_partition_that_is_renamed_during_a_look_is_looked_at_again(world: World) -> None:
    part = PartPrint(TableName("public", "event_of_before"), "d", None, 0, "p")
    with (
        ReadSession(world.url) as session,
        pytest.raises(HeadraceError, match="renamed or dropped") as caught,
    ):
        came_with_rows(session, PartChange(EVENT, 1, part))
    assert caught.value.retry is Retry.BACK_OFF
