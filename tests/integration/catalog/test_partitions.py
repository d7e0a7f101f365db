"""Partitioned tables from publication to documents: the log names leaves, the user names the table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.catalog import read_catalog
from headrace.catalog.needs import TableNeeds
from headrace.catalog.partitions import PartitionRoots, read_place
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.ddl_plan import execute_plan, render
from headrace.postgres.identity import read_identities
from headrace.postgres.publication import read_publication
from headrace.postgres.quoting import table
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import plan_setup
from headrace.postgres.slot import create_slot, read_slot
from headrace.resolution import Resolver, plan_resolution, required_columns
from headrace.schema.load import load_schema
from reference.touched import gathered

EVENTS, USERS = TableName("public", "events"), TableName("public", "users")
LATER = TableName("public", "later")
LAST, YEAR = TableName("public", "Last"), TableName("my year", "2024")
SETUP = """
CREATE TABLE users (id int PRIMARY KEY);
CREATE TABLE events (id int, day int, who int NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE SCHEMA "my year";
CREATE TABLE "my year"."2024" PARTITION OF events FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (day);
CREATE TABLE "Jan" PARTITION OF "my year"."2024" FOR VALUES FROM (0) TO (31);
CREATE TABLE "Last" PARTITION OF events DEFAULT
""".split(";")
SCHEMA = """
version: 1
table: users
primary_key: id
fields:
  - integer: id
  - count: events
    table: events
    foreign_key: who
"""


def oid(session: ReadSession, name: str) -> int:
    [(found,)] = session.query("SELECT to_regclass($1)::oid::bigint", (name,))
    return int(found)


def test_a_partition_stands_for_the_nearest_table_that_is_asked_for(url: str) -> None:
    names = ['public."Jan"', '"my year"."2024"', 'public."Last"', "public.events", "public.users"]
    with ReadSession(url) as session:

        def roots(*wanted: TableName) -> list[TableName]:
            places = [read_place(session, oid(session, name), wanted) for name in names]
            known = [place.root for place in places if place is not None]
            assert len(known) == len(names)
            return known

        jan = TableName("public", "Jan")
        assert roots() == roots(EVENTS, USERS) == [EVENTS, EVENTS, EVENTS, EVENTS, USERS]
        assert roots(EVENTS, YEAR) == [YEAR, YEAR, EVENTS, EVENTS, USERS]
        places = [
            read_place(session, oid(session, name), (EVENTS, YEAR, jan), topmost=True) for name in names
        ]
        assert [place and place.root for place in places] == roots()
        assert roots(jan, USERS) == [jan, EVENTS, EVENTS, EVENTS, USERS]
        assert read_place(session, 1) is None


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_partition_stood_for_is_remembered(url: str, keep: bool) -> None:
    """Old rows of a dropped one come late; those of a detached one are rows of a table of its own now."""
    feb = TableName("public", "feb")
    with ReadSession(url) as session, connect(url) as connection:
        roots = PartitionRoots(lambda oid: read_place(session, oid, [EVENTS]), keep=keep)
        execute(connection, 'CREATE TABLE feb PARTITION OF "my year"."2024" FOR VALUES FROM (31) TO (60)')
        number = oid(session, "public.feb")
        assert roots.root_of(number, feb) == EVENTS
        execute(connection, 'ALTER TABLE "my year"."2024" DETACH PARTITION feb')
        assert roots.root_of(number, feb) == (EVENTS if keep else feb)
        execute(connection, "ALTER TABLE events ATTACH PARTITION feb FOR VALUES FROM (100) TO (160)")
        assert roots.root_of(number, TableName("public", "called_otherwise")) == EVENTS
        execute(connection, "DROP TABLE feb")
        assert roots.root_of(number, feb) == EVENTS
        assert PartitionRoots(lambda _: None, keep=keep).root_of(number, feb) == feb


def set_up(
    connection: Connection, required: Mapping[TableName, Sequence[str]], slot: str | None
) -> list[TableName]:
    """Publication and identities, as the policy `auto` makes them; the tables that were altered."""
    facts = read_identities(connection, required)
    plan = plan_setup(
        facts,
        required,
        publication="p",
        existing=read_publication(connection, "p"),
        slot=None if slot is None else read_slot(connection, slot),
        policy="auto",
        version=connection.info.server_version,
    )
    execute_plan(plan, connection)
    script = render(plan.steps)
    return [one.table for one in facts if f"ALTER TABLE {table(one.table)} REPLICA" in script]


def following(stream: ChangeStream, start: Offset) -> tuple[pa.Table, Offset]:
    """The next changes, and where they end."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        stream.confirm(start)
        end = stream.next_offset(start, Limit(1 << 30), 0.25)
        changes = pa.Table.from_batches(stream.changes(start, end), CHANGES_SCHEMA) if end != start else []
        start = end
        if len(changes):
            return changes, end
    raise AssertionError("nothing came")


def test_changes_of_every_leaf_lead_to_documents_from_the_first_on(url: str, tmp_path: Path) -> None:
    """Flusso's hole 11: changes arrive under the partition's name and are dropped.

    Also for a leaf that is made while the stream runs, for a row that moves to another leaf, and for a
    truncated leaf.
    """
    slot, publication = "s_partitions", "p"
    (tmp_path / "users.schema.yml").write_text(SCHEMA)
    spec = load_schema(tmp_path / "users.schema.yml", "users")
    with ReadSession(url) as session, connect(url) as connection:
        catalog = read_catalog(session, [USERS, EVENTS])
        required = {name: one.columns for name, one in required_columns([spec], catalog).items()}
        set_up(connection, required, None)
        with create_slot(url, slot) as made:
            start = Offset(made.consistent_point)
        resolver = Resolver(session, plan_resolution([spec], catalog))
        needs = {EVENTS: TableNeeds(catalog[EVENTS].oid, {})}
        stream = ChangeStream(
            StreamSettings(url, slot, publication, documents=needs, idle_seconds=1000), start
        )
        stream.open()
        try:
            for statement, touched in (
                ("INSERT INTO events VALUES (1, 1, 7), (2, 500, 8)", {7, 8}),
                ("UPDATE events SET who = 9 WHERE id = 2", {9}),
                ("UPDATE events SET day = 20 WHERE id = 2", {9}),
                ('TRUNCATE "Jan"', None),
                ('ALTER TABLE events DETACH PARTITION "Last"', set()),
                ("CREATE TABLE later PARTITION OF events FOR VALUES FROM (200) TO (300)", set()),
                ("INSERT INTO events VALUES (3, 250, 5)", {5}),
            ):
                execute(connection, statement)
                if touched == set():
                    continue
                changes, start = following(stream, start)
                found = gathered(resolver.resolve(changes))["users"]
                assert found.everything == (touched is None), statement
                assert touched is None or {int(str(key)) for (key,) in found.keys} >= touched, statement
            assert set_up(connection, required, slot) == [LATER], "a new leaf inherits no identity"
            execute(connection, "UPDATE events SET who = 6 WHERE id = 3")
            changes, start = following(stream, start)
            found = gathered(resolver.resolve(changes))["users"]
            assert {int(str(key)) for (key,) in found.keys} == {5, 6}
        finally:
            stream.close()
