"""When does a publication count? The order of publication and slot, and of writers and ADD TABLE."""

from __future__ import annotations

import psycopg
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import ReplicationConnection
from integration.capture.following import Source
from integration.facts.told import Wire, peek, rows, told

pytestmark = pytest.mark.long  # what PostgreSQL does, whatever Headrace is

T = "CREATE TABLE t (id int PRIMARY KEY)"


@pytest.mark.parametrize("version", [16, 15], indirect=True)
def test_a_missing_publication_is_an_error_also_once_it_exists(source: Source) -> None:
    """The plugin looks with the catalog of the time of the change: the slot is broken for good.

    Our setup refuses such a slot (`test_a_slot_that_is_older_than_its_publication_is_refused`).
    """
    source.sql(T)
    source.create_slot()
    source.sql("INSERT INTO t VALUES (1)")
    for _ in range(2):
        with pytest.raises(psycopg.Error, match='publication "headrace" does not exist'):
            peek(source)
        if not source.query("SELECT FROM pg_publication"):
            source.sql("CREATE PUBLICATION headrace FOR ALL TABLES", "INSERT INTO t VALUES (2)")
    with Wire(source) as wire, pytest.raises(HeadraceError) as caught:
        wire.read(10)
    assert caught.value.kind is Kind.PUBLICATION


@pytest.mark.parametrize("version", [18], indirect=True)
def test_a_missing_publication_is_silence(source: Source) -> None:
    source.sql(T)
    source.create_slot()
    source.sql("INSERT INTO t VALUES (1)")
    assert rows(peek(source)) == []
    source.sql("CREATE PUBLICATION headrace FOR ALL TABLES", "INSERT INTO t VALUES (2)")
    assert told(source) == [("I", "t", None, ("2",))], "what was written before is lost without a word"


def test_a_publication_before_the_slot_misses_nothing(source: Source) -> None:
    source.sql(T)
    source.publish()
    source.sql("INSERT INTO t VALUES (1)")
    assert told(source) == [("I", "t", None, ("1",))]


def test_rows_from_before_add_table_are_not_told(source: Source) -> None:
    source.sql(T, "CREATE TABLE b (id int PRIMARY KEY)", "CREATE PUBLICATION headrace FOR TABLE t")
    source.create_slot()
    source.sql(
        "INSERT INTO b VALUES (1)", "ALTER PUBLICATION headrace ADD TABLE b", "INSERT INTO b VALUES (2)"
    )
    assert told(source) == [("I", "b", None, ("2",))]


def test_a_row_of_a_writer_that_was_open_at_add_table_is_nowhere(source: Source) -> None:
    """In the stream only what it wrote later, in a snapshot after ADD TABLE neither.

    Our setup takes a lock that waits for such writers (`test_extending_a_living_slots_publication_…`).
    """
    source.sql(T, "CREATE TABLE b (id int PRIMARY KEY)", "CREATE PUBLICATION headrace FOR TABLE t")
    source.create_slot()
    with connect(source.url, autocommit=False) as writer:
        execute(writer, "INSERT INTO b VALUES (1)")
        source.sql("ALTER PUBLICATION headrace ADD TABLE b")
        snapshot = source.query("SELECT id FROM b")
        execute(writer, "INSERT INTO b VALUES (2)")
        writer.commit()
    assert snapshot == []
    assert told(source) == [("I", "b", None, ("2",))]


def test_what_an_open_writer_wrote_before_add_table_depends_on_others(source: Source) -> None:
    """The plugin's memory of a table holds for whatever is decoded next, also for what is older.

    So the same transaction can have other rows when it is decoded again, whoever reads it:
    docs/guides/altered-tables.md says how to alter a publication. Our own setup lets no such writer be (the
    test above).
    """
    source.sql(T, "CREATE TABLE b (id int PRIMARY KEY)", "CREATE PUBLICATION headrace FOR TABLE t")
    source.create_slot()
    with connect(source.url, autocommit=False) as writer:
        execute(writer, "INSERT INTO b VALUES (1)")
        source.sql("ALTER PUBLICATION headrace ADD TABLE b", "INSERT INTO b VALUES (2)")
        execute(writer, "INSERT INTO b VALUES (3)")
        writer.commit()
    assert told(source) == [("I", "b", None, (number,)) for number in ("2", "1", "3")]
    [(commit,)] = source.query(
        "SELECT lsn FROM pg_logical_slot_peek_binary_changes($1, NULL, 1, 'proto_version', '1', "
        "'publication_names', 'headrace') ORDER BY lsn DESC LIMIT 1",
        source.slot,
    )
    source.query("SELECT pg_replication_slot_advance($1, $2::pg_lsn)", source.slot, commit)
    assert told(source) == [("I", "b", None, ("3",))], "behind the other's commit the first row is gone"


def test_an_exported_snapshot_dies_at_its_connections_next_command(source: Source) -> None:
    """How our `create_slot` keeps it alive and waits for writers: `integration/postgres/test_slot.py`."""
    source.sql(T, "CREATE PUBLICATION headrace FOR ALL TABLES")
    with ReplicationConnection(source.url) as replication:
        [(_, _, snapshot, _)] = replication.execute(
            f"CREATE_REPLICATION_SLOT {source.slot} LOGICAL pgoutput (SNAPSHOT 'export')"
        )
        source.sql("INSERT INTO t VALUES (1)")
        adopt = ("BEGIN ISOLATION LEVEL REPEATABLE READ", f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        with connect(source.url, autocommit=False) as reader:
            execute(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            execute(reader, adopt[1])
            assert execute(reader, "SELECT id FROM t") == []
        replication.execute("SELECT 1")
        with pytest.raises(psycopg.Error, match="snapshot"):
            source.transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", adopt[1])
    assert told(source) == [("I", "t", None, ("1",))]
