"""Documents over partitioned tables, led by the real log, are what a naive evaluation makes of plain SELECTs.

A partitioned table in two levels is the root of one index, stands below the root of another, and its
intermediate partition is the root of a third. Leaves are made, attached, renamed, detached and truncated
while rows move between them; the log is read late.

Flusso's hole 11: changes arrive under the partition's name and are dropped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.catalog import read_catalog
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.needs import IndexNeeds, stream_needs
from headrace.catalog.usage import used_columns
from headrace.model.changes import CHANGES_SCHEMA, key_of_id
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot
from headrace.resolution import Resolver, plan_resolution, required_columns
from headrace.schema.load import load_schema
from integration.capture.following import EVERYTHING, eventually
from reference.touched import gathered

SLOT = "document_partitions"
DDL = """
CREATE TABLE owner (id int PRIMARY KEY, name text);
CREATE TABLE event (id int, day int, owner_id int, what text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE young PARTITION OF event FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (day);
CREATE TABLE old_a PARTITION OF event FOR VALUES FROM (0) TO (50);
CREATE TABLE old_b PARTITION OF event FOR VALUES FROM (50) TO (100);
CREATE TABLE young_a PARTITION OF young FOR VALUES FROM (100) TO (120);
CREATE TABLE young_rest PARTITION OF young DEFAULT;
ALTER TABLE old_a REPLICA IDENTITY FULL;
ALTER TABLE old_b REPLICA IDENTITY FULL;
ALTER TABLE young_a REPLICA IDENTITY FULL;
ALTER TABLE young_rest REPLICA IDENTITY FULL;
INSERT INTO owner SELECT i, 'o' || i FROM generate_series(1, 5) i;
INSERT INTO event SELECT i, i * 7 % 200, 1 + i % 5, 'w' || i FROM generate_series(1, 40) i;
CREATE PUBLICATION document_partitions FOR TABLE owner, event
"""
FIELDS = """
  - keyword: what
  - belongs_to: owner
    table: owner
    column: owner_id
    primary_key: id
    fields: [{ keyword: name }]
"""
SCHEMAS = {
    "events": f"version: 1\ntable: event\nprimary_key: [id, day]\nfields:{FIELDS}",
    "young": f"version: 1\ntable: young\nprimary_key: [id, day]\nfields:{FIELDS}",
    "owners": """
version: 1
table: owner
primary_key: id
fields:
  - keyword: name
  - has_many: events
    table: event
    primary_key: [id, day]
    foreign_key: owner_id
    fields: [{ keyword: what }]
  - count: young
    table: young
    foreign_key: owner_id
""",
}


class Followed:
    """The database, and a store of documents that only the log brings up to date."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.sql(DDL)
        [(start,)] = self.query(
            f"SELECT (lsn - '0/0')::bigint FROM pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
        )
        self.specs = []
        for name, text in SCHEMAS.items():
            (folder / f"{name}.yml").write_text(text)
            self.specs.append(load_schema(folder / f"{name}.yml", name))
        tables = frozenset[TableName]().union(*(spec.tables() for spec in self.specs))
        self.session = ReadSession(url)
        catalog = read_catalog(self.session, tables)
        usage = used_columns(self.specs, catalog)
        found = read_fingerprint(self.session, usage, SLOT)
        required = {
            name: frozenset(one.columns) for name, one in required_columns(self.specs, catalog).items()
        }
        needs = stream_needs([IndexNeeds(usage, found.as_of)], required, found, catalog)
        self.resolver = Resolver(self.session, plan_resolution(self.specs, catalog))
        self.assemblers = {spec.name: Assembler(self.session, spec, catalog) for spec in self.specs}
        self.widths = {spec.name: len(spec.primary_key) for spec in self.specs}
        self.store = self.expected()
        self.position = Offset(start)
        self.stream = ChangeStream(StreamSettings(url, SLOT, SLOT, documents=needs), self.position)
        self.stream.open()

    def close(self) -> None:
        self.stream.close()
        self.session.close()
        with connect(self.url) as connection:
            drop_slot(connection, SLOT, timeout=60)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with connect(self.url) as connection:
            return execute(connection, sql)

    def sql(self, text: str) -> None:
        with connect(self.url) as connection:
            for statement in text.split(";"):
                execute(connection, statement)

    def follow(self) -> None:
        """Apply what the log holds now."""
        [(end,)] = self.query("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        self.query("INSERT INTO owner VALUES (99, 'last') ON CONFLICT (id) DO UPDATE SET name = 'last'")

        def applied() -> bool:
            self.stream.confirm(self.position)
            until = self.stream.next_offset(self.position, EVERYTHING, 0.25)
            if until != self.position:
                batches = self.stream.changes(self.position, until)
                self.apply(pa.Table.from_batches(batches, CHANGES_SCHEMA))
                self.position = until
            return self.position.lsn > end and self.store["owners"].get("99") is not None

        eventually(applied)
        self.sql("DELETE FROM owner WHERE id = 99")
        self.store["owners"].pop("99", None)

    def apply(self, changes: pa.Table) -> None:
        for index, touched in gathered(self.resolver.resolve(changes)).items():
            self.assemble(index, [*touched.keys, *(self.keys(index) if touched.everything else [])])

    def keys(self, index: str) -> list[tuple[str | None, ...]]:
        return [key_of_id(one, self.widths[index]) for one in self.store[index]]

    def assemble(self, index: str, keys: list[tuple[str | None, ...]]) -> None:
        for one in self.assemblers[index].assemble(keys, 1):
            self.store[index].pop(one.id, None)
            if one.body is not None:
                self.store[index][one.id] = json.loads(one.body)

    def renew(self) -> None:
        """What a run does when a partition has gone."""
        for index in self.store:
            self.assemble(index, self.keys(index))

    def expected(self) -> dict[str, dict[str, object]]:
        owners = dict(self.query("SELECT id, name FROM owner WHERE id <> 99"))
        events = self.query("SELECT id, day, owner_id, what FROM event ORDER BY id, day")
        young = self.query("SELECT id, day, owner_id, what FROM young ORDER BY id, day")

        def documents(rows: list[tuple[Any, ...]]) -> dict[str, object]:
            return {
                f"{number}:{day}": {
                    "what": what,
                    "owner": {"name": owners[owner]} if owner in owners else None,
                }
                for number, day, owner, what in rows
            }

        mine: dict[str, object] = {
            str(owner): {
                "name": name,
                "events": [{"what": what} for _, _, other, what in events if other == owner],
                "young": sum(other == owner for _, _, other, _ in young),
            }
            for owner, name in owners.items()
        }
        return {"events": documents(events), "young": documents(young), "owners": mine}


@pytest.fixture
def followed(database: str, tmp_path: Path) -> Iterator[Followed]:
    followed = Followed(database, tmp_path)
    yield followed
    followed.close()


def random_change(choice: random.Random) -> str:
    one, day, owner = choice.randint(1, 50), choice.randint(0, 199), choice.randint(1, 6)
    return choice.choice(
        [
            f"INSERT INTO event VALUES ({one}, {day}, {owner}, 'n{day}') ON CONFLICT DO NOTHING",
            f"UPDATE event SET day = {day} WHERE id = {one}",
            f"UPDATE event SET day = (day + 50) % 200 WHERE id % 5 = {owner} AND id < 41",
            f"UPDATE event SET owner_id = {owner} WHERE id = {one}",
            f"UPDATE event SET what = 'c{day}' WHERE day BETWEEN {day} AND {day + 20}",
            f"DELETE FROM event WHERE id = {one}",
            f"UPDATE owner SET name = 'p{day}' WHERE id = {owner}",
            f"INSERT INTO owner VALUES ({owner}, 'n') ON CONFLICT DO NOTHING",
            f"TRUNCATE {choice.choice(['old_a', 'old_b', 'young_rest', 'young'])}",
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_rows_move_between_leaves_and_leaves_are_truncated(followed: Followed, seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(4):
        for _ in range(choice.randint(1, 12)):
            followed.sql(random_change(choice))
        followed.follow()
        assert followed.store == followed.expected()


LEAVES = {
    "made": "CREATE TABLE later PARTITION OF event FOR VALUES FROM (200) TO (300)",
    "attached empty": """CREATE TABLE later (LIKE event INCLUDING ALL);
        ALTER TABLE event ATTACH PARTITION later FOR VALUES FROM (200) TO (300)""",
    "a tree": """CREATE TABLE branch PARTITION OF event FOR VALUES FROM (200) TO (300) PARTITION BY HASH (id);
        CREATE TABLE later PARTITION OF branch FOR VALUES WITH (MODULUS 1, REMAINDER 0)""",
}


@pytest.mark.parametrize("making", LEAVES.values(), ids=LEAVES)
def test_leaves_come_are_renamed_and_go(followed: Followed, making: str) -> None:
    followed.sql(
        f"INSERT INTO event VALUES (70, 7, 1, 'early'); {making}; ALTER TABLE later REPLICA IDENTITY FULL;"
        "INSERT INTO event VALUES (71, 250, 1, 'in it'), (72, 251, 2, 'moves on'), (73, 252, 2, 'is gone');"
        "UPDATE event SET day = 252 WHERE id = 1; UPDATE event SET day = 8 WHERE id = 72;"
        "ALTER TABLE later RENAME TO called_otherwise; DELETE FROM event WHERE id = 73;"
        "UPDATE event SET owner_id = 3 WHERE id = 71"
    )
    followed.follow()
    assert followed.store == followed.expected()
    followed.sql("ALTER TABLE event DETACH PARTITION old_b; INSERT INTO event VALUES (74, 9, 5, 'then')")
    followed.follow()
    assert followed.store != followed.expected(), "the log says nothing of a partition that goes"
    followed.renew()
    assert followed.store == followed.expected()
    followed.sql("DELETE FROM old_b WHERE id % 2 = 0; DROP TABLE old_a; UPDATE event SET what = 'x'")
    followed.follow()
    followed.renew()
    assert followed.store == followed.expected()
