"""Tables are altered while a deployment runs and while it is stopped; partitioned ones among them.

One deployment goes through it all. The oracle is plain SELECTs, put together here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.definitions import LOOK_SECONDS
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from support.driven_run import DrivenRun
from support.shop_oracle import Documents, actual_documents, differences

DDL = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE shop (id int PRIMARY KEY, mood mood, total int, spare text);
CREATE TABLE line (id int PRIMARY KEY, shop_id int NOT NULL, qty int);
CREATE UNIQUE INDEX line_identity ON line (shop_id, id);
ALTER TABLE line REPLICA IDENTITY USING INDEX line_identity;
CREATE TABLE event (shop_id int, day int, what text, PRIMARY KEY (shop_id, day)) PARTITION BY RANGE (day);
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (10) TO (20);
CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM (20) TO (30);
INSERT INTO shop SELECT i, 'low', i * 10 FROM generate_series(1, 9) i;
INSERT INTO line SELECT i, 1 + i % 9, i FROM generate_series(1, 30) i;
INSERT INTO event SELECT 1 + i % 9, i, 'w' || i FROM generate_series(1, 29) i
"""
SHOPS = """
version: 1
table: shop
primary_key: id
fields:
  - enum: mood
  - integer: total
  - has_many: lines
    table: line
    primary_key: id
    foreign_key: shop_id
    fields: [{ integer: qty }]
  - has_many: events
    table: event
    primary_key: [shop_id, day]
    foreign_key: shop_id
    fields: [{ keyword: what }]
"""
EVENTS = """
version: 1
table: event
primary_key: [shop_id, day]
fields:
  - keyword: what
  - belongs_to: shop
    table: shop
    column: shop_id
    primary_key: id
    fields: [{ enum: mood }]
"""


class Story(DrivenRun):
    def __init__(self, folder: Path, url: str, sink: str, name: str) -> None:
        self.url, self.sink, self.prefix, self.folder = url, sink, f"{name}_", folder
        config = folder / "headrace.toml"
        config.write_text(
            f'prefix = "{self.prefix}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\n'
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\n'
            '[[index]]\nname = "shops"\nschema = "shops.yml"\n'
            '[[index]]\nname = "events"\nschema = "events.yml"\n'
        )
        self.write_schema(SHOPS)
        (folder / "events.yml").write_text(EVENTS)
        self.total = "total"
        super().__init__(config, name, folder, ready_within=400)

    def write_schema(self, text: str) -> None:
        (self.folder / "shops.yml").write_text(text)

    def sql(self, text: str) -> None:
        """Each statement in a transaction of its own."""
        with connect(self.url) as connection:
            for statement in text.split(";"):
                execute(connection, statement)

    def expected(self) -> dict[str, Documents]:
        with connect(self.url) as connection:
            shops = execute(connection, f"SELECT id, mood::text, {self.total} FROM shop")
            lines = execute(connection, "SELECT shop_id, qty FROM line ORDER BY id")
            events = execute(connection, "SELECT shop_id, day, what FROM event ORDER BY shop_id, day")
        moods = {shop: mood for shop, mood, _ in shops}
        return {
            "shops": {
                str(shop): {
                    "mood": mood,
                    "total": total,
                    "lines": [{"qty": qty} for owner, qty in lines if owner == shop],
                    "events": [{"what": what} for owner, _, what in events if owner == shop],
                }
                for shop, mood, total in shops
            },
            "events": {
                f"{shop}:{day}": {"what": what, "shop": {"mood": moods[shop]} if shop in moods else None}
                for shop, day, what in events
            },
        }

    def generations(self) -> set[str]:
        found = urllib3.request("GET", f"{self.sink}/{self.prefix}*/_alias").json()
        return {name for name in found if "_headrace_" not in name}

    def served(self, index: str) -> set[str]:
        """The generations that the readers' alias leads to."""
        return set(urllib3.request("GET", f"{self.sink}/_alias/{self.prefix}{index}").json())

    def wrong(self) -> list[str]:
        return [
            f"{index}: {line}"
            for index, documents in self.expected().items()
            for line in differences(documents, actual_documents(self.sink, self.prefix + index))
        ]

    def converges(self, seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while wrong := self.wrong():
            assert time.monotonic() < end, "\n".join([*wrong, self.last_output()])
            self.assert_running()
            time.sleep(0.2)

    def rebuilds_for(self, statements: str) -> None:
        """It finds these statements by itself, and goes on."""
        before = self._count("is not followed any more: ")
        self.sql(statements)
        self.wait_until(
            lambda: self._count("is not followed any more: ") > before, "did not begin again", 180
        )

    def wait_rebuilt(self, before: set[str]) -> None:
        """Wait until the generations are others than `before`; what it says may concern an earlier change."""
        self.wait_until(lambda: self.generations() != before, "rebuilt no index", 180)

    def _count(self, said: str) -> int:
        return self.output.read_text().count(said)


@pytest.fixture(scope="module")
def story(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    name = "alterations"
    story = Story(tmp_path_factory.mktemp(name), postgres.create_database(name), opensearch.url, name)
    story.sql(DDL)
    yield story
    story.close()
    with connect(story.url) as connection:
        drop_slot(connection, name)
    postgres.drop_database(name)


@pytest.mark.long
def test_partitioned_tables_are_followed_and_altered(story: Story) -> None:
    """As the root of documents and below another: rows move, leaves are truncated, dropped and made.

    Flusso's hole 11: changes arrive under the partition's name and are dropped.
    """
    story.start()
    story.wait_ready()
    assert story.wrong() == []

    story.sql(
        "INSERT INTO event VALUES (1, 30 - 2, 'new') ON CONFLICT (shop_id, day) DO UPDATE SET what = 'new';"
        "UPDATE event SET day = day - 20 WHERE day BETWEEN 24 AND 26;"
        "DELETE FROM event WHERE day = 22; UPDATE event SET what = what || '!' WHERE day < 5;"
        "UPDATE event SET shop_id = 9 WHERE shop_id = 8; UPDATE line SET shop_id = 3 WHERE shop_id = 2"
    )
    story.converges()
    story.sql(
        "TRUNCATE event_2; ALTER TABLE shop ALTER spare TYPE varchar(3); ALTER TABLE shop RENAME spare TO x"
    )
    story.sql("INSERT INTO shop VALUES (20, 'high', 5)")
    story.converges()

    story.sql("DROP TABLE event_1; CREATE TABLE event_9 PARTITION OF event FOR VALUES FROM (90) TO (99)")
    story.sql(
        "INSERT INTO event VALUES (20, 91, 'late'), (4, 92, 'late');"
        "UPDATE event SET what = 'later' WHERE day = 92"
    )
    story.converges()

    before = story.generations()
    story.sql("ALTER TYPE mood ADD VALUE 'new' BEFORE 'high'; INSERT INTO shop VALUES (21, 'new', 6)")
    story.converges()
    time.sleep(2 * LOOK_SECONDS)  # longer than the catalog is not looked at
    assert story.generations() <= before, "no document is another one for it"

    story.sql("ALTER TYPE mood RENAME VALUE 'low' TO 'down'")
    story.converges()
    assert story.generations() != before
    assert "the values of the column mood of the table shop were made of" in story.last_output()
    story.wait_ready()
    story.sql("UPDATE shop SET mood = 'down' WHERE id = 20; UPDATE line SET qty = qty + 1")
    story.converges()

    story.sql("ALTER TABLE shop RENAME total TO amount")
    waits = "shops waiting: [HEADRACE_BINDING]"
    story.wait_until(lambda: waits in story.output.read_text(), "did not wait", 60)
    story.sql("UPDATE event SET what = what || '?'; ALTER TABLE shop RENAME amount TO total")
    story.converges()
    story.wait_ready()
    story.terminate()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tables_are_altered_while_nothing_runs(story: Story) -> None:
    """What was renamed above is back; what is renamed below is not."""
    story.start()
    story.wait_ready()
    story.converges()
    story.terminate()

    story.sql(
        "UPDATE shop SET total = total + 1; UPDATE line SET shop_id = 5 WHERE shop_id = 3;"
        "ALTER TABLE shop RENAME total TO amount; UPDATE shop SET amount = amount + 1 WHERE id < 5;"
        "ALTER TABLE line RENAME shop_id TO shop; UPDATE line SET shop = 6 WHERE shop = 5;"
        "ALTER TABLE line RENAME shop TO shop_id; UPDATE line SET shop_id = 7 WHERE shop_id = 6;"
        "INSERT INTO event VALUES (7, 15, 'gone soon'); DROP TABLE event_2;"
        "CREATE TABLE event_5 (LIKE event INCLUDING ALL); INSERT INTO event_5 VALUES (2, 55, 'attached');"
        "ALTER TABLE event ATTACH PARTITION event_5 FOR VALUES FROM (50) TO (60)"
    )
    story.write_schema(SHOPS.replace("integer: total", "integer: total\n    column: amount"))
    story.total = "amount"
    story.start()
    story.wait_ready()
    story.converges()
    story.sql("UPDATE shop SET amount = 0; UPDATE event SET what = 'x'; UPDATE line SET shop_id = 1")
    story.converges()
    story.terminate()


def backfilled(story: Story) -> None:
    """Also where one of the tests below runs alone."""
    if not story.output.exists():
        story.start()
        story.wait_ready()
        story.terminate()


@pytest.mark.long
def test_a_partition_goes_while_nothing_runs(story: Story) -> None:
    """No index is rebuilt for it."""
    backfilled(story)
    before = story.generations()
    story.sql("INSERT INTO event VALUES (9, 29, 'gone soon') ON CONFLICT DO NOTHING")
    story.sql("UPDATE event SET shop_id = 6 WHERE shop_id = 4; DROP TABLE event_3")
    story.start()
    story.wait_ready()
    story.converges()
    story.terminate()
    assert story.generations() <= before  # what was frozen before may be dropped now


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_only_the_log_knows_is_rebuilt_in_the_same_process(story: Story) -> None:
    """The catalog is as it was; the log holds rows that the plan cannot lead anywhere, for ever."""
    backfilled(story)
    story.sql(
        "ALTER TABLE line RENAME shop_id TO shop; UPDATE line SET shop = 2 WHERE id < 9;"
        "ALTER TABLE line RENAME shop TO shop_id"
    )
    shops, events = story.served("shops"), story.served("events")
    story.start()
    story.wait_until(lambda: story.served("shops") != shops, "was not rebuilt", 120)
    story.wait_ready()
    story.converges()
    assert "is not followed any more: " in story.last_output()
    assert story.served("events") == events, "it does not read the table"
    story.terminate()


UNDONE = {
    "a table is called otherwise": """ALTER TABLE line RENAME TO x; UPDATE x SET qty = 77, shop_id = 3;
        ALTER TABLE x RENAME TO line""",
    "a partition is detached": """ALTER TABLE event DETACH PARTITION event_9; UPDATE event_9 SET what = 'a';
        ALTER TABLE event ATTACH PARTITION event_9 FOR VALUES FROM (90) TO (99)""",
    "the publication is narrowed": """ALTER PUBLICATION alterations SET (publish = 'insert');
        UPDATE line SET qty = 78, shop_id = 4;
        ALTER PUBLICATION alterations SET (publish = 'insert, update, delete, truncate')""",
    "a partition is unlogged": """ALTER TABLE event_9 SET UNLOGGED; UPDATE event_9 SET what = 'unlogged';
        ALTER TABLE event_9 SET LOGGED""",
    "a partition gets rows while it is unlogged": """ALTER TABLE event_9 SET UNLOGGED;
        INSERT INTO event VALUES (5, 95, 'unlogged') ON CONFLICT DO NOTHING;
        DELETE FROM event_9 WHERE day = 91;
        ALTER TABLE event_9 SET LOGGED""",
}
HARMLESS = """
GRANT SELECT ON shop, line, event, event_9 TO PUBLIC; GRANT USAGE ON SCHEMA public TO PUBLIC;
CREATE INDEX ON line (qty); ANALYZE; VACUUM; VACUUM FULL line; VACUUM FULL event_9; VACUUM FULL shop;
COMMENT ON TABLE line IS 'lines'; ALTER PUBLICATION alterations SET TABLE shop, line, event;
ALTER TABLE line SET (fillfactor = 70); ALTER TABLE line RENAME CONSTRAINT line_pkey TO lines_key
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
def test_what_is_altered_and_altered_back_is_not_lost(story: Story, *, running: bool) -> None:
    """Whatever was written between is in no log, or under another name."""
    backfilled(story)
    story.sql(
        """CREATE TABLE IF NOT EXISTS event_9 PARTITION OF event FOR VALUES FROM (90) TO (99);
        INSERT INTO event VALUES (2, 91, 'late'), (4, 92, 'late') ON CONFLICT DO NOTHING"""
    )
    story.start()
    story.wait_ready()
    story.converges()
    before = story.generations()
    for statements in UNDONE.values():
        if running:
            story.rebuilds_for(statements)
        else:
            story.terminate()
            story.sql(statements)
            story.start()
        story.wait_rebuilt(before)
        story.wait_ready()
        story.converges()
        before = story.generations()
        story.sql("UPDATE line SET shop_id = 1 + id % 9; UPDATE event SET what = what || '.'")
        story.converges()
    story.sql(HARMLESS)
    story.sql("UPDATE line SET shop_id = 1 + shop_id % 9; UPDATE event SET what = what || '!'")
    story.converges()
    story.terminate()
    story.sql(HARMLESS.replace("RENAME CONSTRAINT line_pkey TO lines_key", "SET (fillfactor = 60)"))
    story.start()
    story.wait_ready()
    story.converges()
    assert story.generations() <= before, "what came before may be dropped, nothing is made"
    story.sql("ALTER TABLE line RENAME CONSTRAINT lines_key TO line_pkey")
    story.terminate()
