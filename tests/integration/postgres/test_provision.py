"""What a source by itself needs: its publication, whole or in part, made before its slot."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.pgoutput.frames import Frames
from headrace.postgres import locks
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.locks import publication_lock
from headrace.postgres.publication import PublishedTable, read_publication
from headrace.postgres.publication_filters import PublicationFilter
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import read_slot
from support.frames import messages_of
from support.slots import ensure_slot

ORDERS, OTHER = TableName("public", 'Or"ders'), TableName("public", "other")
PUBLICATION = 'it\'s "mine", all'
PARTS_SINCE = 150000


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    execute(connection, 'CREATE TABLE "Or""ders" (id int PRIMARY KEY, "User" int, note text, total int)')
    execute(connection, "CREATE TABLE other (id int PRIMARY KEY)")


def ensure(url: str, *names: TableName, slot: str = "s", create: bool = True,
           selections: Mapping[TableName, PublicationFilter] | None = None) -> int:  # fmt: skip
    return ensure_slot(
        url, slot=slot, publication=PUBLICATION, tables=names, create=create, selections=selections
    )


def published(connection: Connection) -> Mapping[TableName, PublishedTable]:
    facts = read_publication(connection, PUBLICATION)
    assert facts is not None
    return facts.tables


def streamed(url: str, word: bytes) -> bytes:
    """The messages of the slot `s` up to one with this word, end to end."""
    found = b""
    with ReplicationConnection(url) as stream:
        stream.start("s", 0, [PUBLICATION])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and word not in found:
            frames = Frames()
            if not stream.receive(frames, 1 << 20):
                stream.wait(0.1)
            found += b"".join(data[25:] for data in messages_of(frames) if data[:1] == b"w")
    return found


def test_publication_and_slot_are_made_with_hostile_names_and_found_again(
    url: str, connection: Connection
) -> None:
    """Drasi's hole 8 (names spliced unescaped), flusso's hole 3 (a slot before its publication)."""
    point = ensure(url, ORDERS)
    assert set(published(connection)) == {ORDERS}
    execute(connection, """INSERT INTO "Or""ders" VALUES (1, 2, 'here', 3)""")
    assert b"here" in streamed(url, b"here")
    assert ensure(url, ORDERS) == point, "it goes on from where it stands"
    facts = read_publication(connection, PUBLICATION)
    assert facts is not None
    assert facts.own


def test_an_own_publication_is_extended_and_a_foreign_one_is_not(url: str, connection: Connection) -> None:
    """Drasi's hole 9: a publication that does not carry what is asked for must not look like running."""
    ensure(url, ORDERS)
    with pytest.raises(HeadraceError, match="does not publish other") as caught:
        ensure(url, ORDERS, OTHER, create=False)
    assert caught.value.kind is Kind.PUBLICATION
    ensure(url, ORDERS, OTHER)
    assert set(published(connection)) == {ORDERS, OTHER}
    execute(connection, "CREATE PUBLICATION foreign_one FOR TABLE other")
    with pytest.raises(HeadraceError, match=r"LOCK TABLE.*ADD TABLE") as caught:
        ensure_slot(url, slot="s", publication="foreign_one", tables=[ORDERS], create=True)
    assert caught.value.kind is Kind.PUBLICATION


def test_a_session_that_keeps_others_from_the_publication_is_named(
    url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PUBLICATION_SECONDS", 0.5)
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    with connect(url, application_name="suspended") as other:
        with publication_lock(other, PUBLICATION), publication_lock(connection, "another"):
            with pytest.raises(HeadraceError, match="suspended") as caught:
                ensure_slot(
                    url, slot="s", publication=PUBLICATION, tables=[TableName("public", "t")], create=True
                )
            assert caught.value.kind is Kind.DATABASE
        ensure_slot(url, slot="s", publication=PUBLICATION, tables=[TableName("public", "t")], create=True)


def test_nothing_is_published_whose_writers_would_fail(url: str, connection: Connection) -> None:
    execute(connection, "CREATE TABLE keyless (word text)")
    with pytest.raises(
        HeadraceError, match=r'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL'
    ) as caught:
        ensure(url, TableName("public", "keyless"))
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert read_publication(connection, PUBLICATION) is None
    assert read_slot(connection, "s") is None


def test_a_slot_that_is_older_than_the_publication_is_refused(url: str, connection: Connection) -> None:
    execute(connection, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with pytest.raises(HeadraceError, match="younger") as caught:
        ensure(url, ORDERS)
    assert caught.value.kind is Kind.PUBLICATION
    assert read_publication(connection, PUBLICATION) is None


def test_a_missing_table_and_a_missing_publication_are_named(url: str, connection: Connection) -> None:
    """Drasi's hole 9: a missing publication loops for ever while the state says Running."""
    with pytest.raises(HeadraceError, match="no table nowhere") as caught:
        ensure(url, TableName("public", "nowhere"))
    assert caught.value.kind is Kind.BINDING
    with pytest.raises(HeadraceError, match="no publication") as caught:
        ensure(url, create=False)
    assert caught.value.kind is Kind.PUBLICATION


def test_a_part_of_a_table_is_sent_where_somebody_asked_for_it(url: str, connection: Connection) -> None:
    part = PublicationFilter(frozenset({"id", "note", "total"}), "total > 10 OR id = 0")
    if connection.info.server_version < PARTS_SINCE:
        with pytest.raises(HeadraceError, match="needs PostgreSQL 15 or later") as caught:
            ensure(url, ORDERS, selections={ORDERS: part})
        assert caught.value.kind is Kind.SERVER_VERSION
        return
    execute(connection, 'CREATE UNIQUE INDEX mine ON "Or""ders" (id, total)')
    execute(connection, 'ALTER TABLE "Or""ders" ALTER total SET NOT NULL, REPLICA IDENTITY USING INDEX mine')
    ensure(url, ORDERS, selections={ORDERS: part})
    assert published(connection) == {ORDERS: PublishedTable(part.columns, row_filter=True)}
    execute(connection, """INSERT INTO "Or""ders" VALUES (1, 777, 'small', 3), (2, 777, 'large', 30)""")
    execute(connection, """UPDATE "Or""ders" SET note = 'new', total = 40 WHERE id = 2""")
    carried = streamed(url, b"new")
    assert b"large" in carried
    assert b"new" in carried
    assert b"small" not in carried
    assert b"777" not in carried


@pytest.mark.parametrize(
    ("part", "identity", "refused"),
    [
        (PublicationFilter(frozenset({"id", "nothing"})), "DEFAULT", (Kind.CONFIG, "no column nothing")),
        (PublicationFilter(frozenset({"note"})), "DEFAULT", (Kind.REPLICA_IDENTITY, "identified by id")),
        (PublicationFilter(frozenset({"id"})), "FULL", (Kind.REPLICA_IDENTITY, "FULL")),
        (PublicationFilter(rows="total > 10"), "DEFAULT", (Kind.REPLICA_IDENTITY, "filtered by total")),
        (PublicationFilter(rows="random() > 0"), "FULL", (Kind.CONFIG, "random")),
        (PublicationFilter(rows="total >"), "FULL", (Kind.CONFIG, "total >")),
        (
            PublicationFilter(rows='"User" > 1 OR note IS NULL'),
            "DEFAULT",
            (Kind.REPLICA_IDENTITY, "User, note"),
        ),
    ],
)  # fmt: skip
def test_a_part_that_would_make_the_writers_fail_is_refused(
    url: str, connection: Connection, part: PublicationFilter, identity: str, refused: tuple[Kind, str]
) -> None:
    execute(connection, f'ALTER TABLE "Or""ders" REPLICA IDENTITY {identity}')
    before = connection.info.server_version < PARTS_SINCE
    if before:
        refused = Kind.SERVER_VERSION, "needs PostgreSQL 15 or later"
    with pytest.raises(HeadraceError) as caught:
        ensure(url, ORDERS, selections={ORDERS: part})
    assert caught.value.kind is refused[0], caught.value
    assert refused[1] in str(caught.value)
    assert execute(connection, "SELECT pubname FROM pg_publication") == []


def test_a_part_of_a_partitioned_table_is_refused(url: str, connection: Connection) -> None:
    if connection.info.server_version < PARTS_SINCE:
        return
    events = TableName("public", "events")
    execute(connection, "CREATE TABLE events (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)")
    execute(connection, "CREATE TABLE part PARTITION OF events DEFAULT")
    for part in (PublicationFilter(frozenset({"id"})), PublicationFilter(rows="id > 1")):
        with pytest.raises(HeadraceError) as caught:
            ensure(url, events, selections={events: part})
        assert caught.value.kind is Kind.CONFIG
    assert execute(connection, "SELECT pubname FROM pg_publication") == []
    ensure(url, events)
    assert set(published(connection)) == {TableName("public", "part")}


@pytest.mark.parametrize(
    ("clause", "identity"), [("(note)", "DEFAULT"), ("(id)", "FULL"), ("WHERE (total > 10)", "DEFAULT")]
)
def test_why_it_is_refused_the_writers_do_fail(connection: Connection, clause: str, identity: str) -> None:
    """If this fails, the refusal can go."""
    if connection.info.server_version < PARTS_SINCE:
        return
    execute(connection, f'ALTER TABLE "Or""ders" REPLICA IDENTITY {identity}')
    execute(connection, f'CREATE PUBLICATION narrow FOR TABLE "Or""ders" {clause}')
    execute(connection, 'INSERT INTO "Or""ders" VALUES (1, 2, NULL, 3)')
    with pytest.raises(psycopg.errors.InvalidColumnReference):
        execute(connection, """UPDATE "Or""ders" SET note = 'x'""")
