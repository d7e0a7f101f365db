"""What do the log's rows say? Each replica identity, TOAST, keys, truncation, filters, shapes."""

from __future__ import annotations

import psycopg
import pytest

from headrace.model.changes import Op
from headrace.model.names import TableName
from headrace.pgoutput.messages import Relation
from headrace.postgres.connection import connect
from headrace.postgres.identity import change_problem, read_identities, stronger_identity
from integration.capture.following import Source, take
from integration.facts.told import peek, rows, told, truncates
from reference.pgoutput import UNCHANGED, Unchanged

pytestmark = pytest.mark.long  # what PostgreSQL does, whatever Headrace is

T = TableName("public", "t")
LONG = "x" * 9000
U: Unchanged = UNCHANGED


def publish(source: Source, clause: str) -> None:
    """A publication, then its slot."""
    source.sql(f"CREATE PUBLICATION headrace {clause}")
    source.create_slot()


def toasted(source: Source, *statements: str) -> None:
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, long text)",
        "ALTER TABLE t ALTER COLUMN long SET STORAGE EXTERNAL",
        *statements,
    )
    source.publish()
    source.sql(f"INSERT INTO t VALUES (1, 1, '{LONG}')", "UPDATE t SET n = 2", "UPDATE t SET id = 2")


def test_an_unchanged_toasted_value_is_left_out_also_when_the_key_changes(source: Source) -> None:
    toasted(source)
    assert told(source)[1:] == [
        ("U", "t", None, ("1", "2", U)),
        ("UK", "t", ("1", None, None), ("2", "2", U)),
    ]


def test_under_full_the_new_row_leaves_it_out_too_and_the_old_one_has_it(source: Source) -> None:
    """What we make of both: `test_statements` (the value comes from the old row, or is absent)."""
    toasted(source, "ALTER TABLE t REPLICA IDENTITY FULL")
    assert told(source)[1:] == [
        ("UO", "t", ("1", "1", LONG), ("1", "2", U)),
        ("UO", "t", ("1", "2", LONG), ("2", "2", U)),
    ]


def test_a_changed_key_and_a_delete_send_the_old_key_with_nulls_beside_it(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    source.publish()
    source.sql("INSERT INTO t VALUES (1, 1)", "UPDATE t SET n = 2", "UPDATE t SET id = 2", "DELETE FROM t")
    assert told(source)[1:] == [
        ("U", "t", None, ("1", "2")),
        ("UK", "t", ("1", None), ("2", "2")),
        ("DK", "t", ("2", None), None),
    ]


def test_full_sends_the_old_row_with_every_update_and_delete(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    source.publish()
    source.sql("INSERT INTO t VALUES (1, 1)", "UPDATE t SET n = 2", "DELETE FROM t")
    assert told(source)[1:] == [("UO", "t", ("1", "1"), ("1", "2")), ("DO", "t", ("1", "2"), None)]


def test_an_index_sends_the_old_key_only_where_its_own_columns_change(source: Source) -> None:
    """A changed primary key alone sends no old row: so our identities always have the key in them."""
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
    )
    source.publish()
    source.sql("INSERT INTO t VALUES (1, 7)", "UPDATE t SET id = 2", "UPDATE t SET code = 8", "DELETE FROM t")
    assert told(source)[1:] == [
        ("U", "t", None, ("2", "7")),
        ("UK", "t", (None, "7"), ("2", "8")),
        ("DK", "t", (None, "8"), None),
    ]
    with connect(source.url) as connection:
        [facts] = read_identities(connection, [T])
        change = stronger_identity(facts, [])
    assert facts.identity_columns == {"code"}
    assert change is not None
    assert set(change.index_columns) == {"id", "code"}


@pytest.mark.parametrize(
    "shape",
    [
        ("CREATE TABLE t (id int)",),
        ("CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING"),
    ],
    ids=["no key", "nothing"],
)
def test_without_an_identity_the_applications_updates_fail(source: Source, shape: tuple[str, ...]) -> None:
    source.sql(*shape, "INSERT INTO t VALUES (1)")
    with connect(source.url) as connection:
        [facts] = read_identities(connection, [T])
    assert not facts.writable_when_published, "seen before it is published"
    source.sql("UPDATE t SET id = 2")
    source.publish()
    for statement in ("UPDATE t SET id = 3", "DELETE FROM t"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
            source.sql(statement)
    source.sql("INSERT INTO t VALUES (4)")
    assert told(source) == [("I", "t", None, ("4",))]


def test_a_composite_key_comes_in_table_order_and_full_calls_every_column_key(source: Source) -> None:
    source.sql("CREATE TABLE t (a int, n int, b int, PRIMARY KEY (b, a))")
    source.publish()
    source.sql("INSERT INTO t VALUES (1, 2, 3)", "DELETE FROM t", "ALTER TABLE t REPLICA IDENTITY FULL")
    source.sql("INSERT INTO t VALUES (4, 5, 6)")
    messages = peek(source)
    assert rows(messages)[1] == ("DK", "t", ("1", None, "3"), None)
    shapes = [message for message in messages if isinstance(message, Relation)]
    assert [[column.key for column in shape.columns] for shape in shapes] == [
        [True, False, True],
        [True, True, True],
    ]
    assert [shape.replica_identity for shape in shapes] == ["d", "f"]
    with connect(source.url) as connection:
        [facts] = read_identities(connection, [T])
    assert facts.primary_key == ("b", "a"), "so the catalog is asked for the key"


def test_one_truncate_is_one_message_with_the_published_tables(source: Source) -> None:
    source.sql(
        "CREATE TABLE parent (id serial PRIMARY KEY)",
        "CREATE TABLE child (parent int REFERENCES parent)",
        "CREATE TABLE hidden (parent int REFERENCES parent)",
    )
    publish(source, "FOR TABLE parent, child")
    source.sql("TRUNCATE parent CASCADE", "TRUNCATE parent, child, hidden RESTART IDENTITY", "TRUNCATE child")
    assert truncates(peek(source)) == [
        ({"parent", "child"}, True, False),
        ({"parent", "child"}, False, True),
        ({"child"}, False, False),
    ]


def test_our_rows_of_a_truncate_are_one_for_each_table(source: Source) -> None:
    source.sql("CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (p int REFERENCES parent)")
    start = source.publish()
    source.sql("TRUNCATE parent CASCADE")
    changes, _ = take(source.stream(start), start, 2)
    assert {(change.table.name, change.op) for change in changes} == {
        ("parent", Op.TRUNCATE),
        ("child", Op.TRUNCATE),
    }


PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
)


def test_via_the_root_a_truncated_partition_is_not_told(source: Source) -> None:
    """Why a publication with publish_via_partition_root is refused (`test_setup`)."""
    source.sql(*PARTED)
    publish(source, "FOR TABLE t WITH (publish_via_partition_root)")
    source.sql("INSERT INTO t VALUES (1)", "TRUNCATE low", "TRUNCATE t")
    messages = peek(source)
    assert rows(messages) == [("I", "t", None, ("1",))]
    assert truncates(messages) == [({"t"}, False, False)]


def test_without_it_the_partitions_are_named(source: Source) -> None:
    source.sql(*PARTED)
    publish(source, "FOR TABLE t")
    source.sql("INSERT INTO t VALUES (1)", "TRUNCATE low")
    messages = peek(source)
    assert rows(messages) == [("I", "low", None, ("1",))]
    assert truncates(messages) == [({"low"}, False, False)]


@pytest.mark.parametrize("root", [True, False])
def test_a_row_that_moves_to_another_partition_is_deleted_and_inserted(source: Source, *, root: bool) -> None:
    source.sql(*PARTED)
    publish(source, f"FOR TABLE t WITH (publish_via_partition_root = {root})")
    source.sql("INSERT INTO t VALUES (1)", "UPDATE t SET id = 11")
    low, high = ("t", "t") if root else ("low", "high")
    assert told(source)[1:] == [("DK", low, ("1",), None), ("I", high, None, ("11",))]


def test_a_filters_columns_must_be_in_the_identity(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    publish(source, "FOR TABLE t WHERE (n > 5)")
    with pytest.raises(psycopg.Error, match="replica identity"):
        source.sql("UPDATE t SET n = 2")


def test_a_row_that_crosses_the_filter_appears_and_vanishes(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    publish(source, "FOR TABLE t WHERE (n > 5)")
    source.sql(
        "INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET n = 7",
        "UPDATE t SET n = 8",
        "UPDATE t SET n = 2",
        "DELETE FROM t",
    )
    assert told(source) == [
        ("I", "t", None, ("1", "7")),
        ("UO", "t", ("1", "7"), ("1", "8")),
        ("DO", "t", ("1", "8"), None),
    ]


def test_generated_columns_are_not_told(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1)")
    assert told(source) == [("I", "t", None, ("1",))]
    changes, _ = take(source.stream(start), start, 1)
    assert changes[0].after == {"id": "1"}


@pytest.mark.parametrize("version", [18], indirect=True)
def test_a_publication_can_ask_for_stored_ones(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    publish(source, "FOR TABLE t WITH (publish_generated_columns = stored)")
    start = source.confirmed()
    source.sql("INSERT INTO t VALUES (1)")
    assert told(source) == [("I", "t", None, ("1", "2"))]
    assert source.confirmed() == start


def test_sequences_and_work_that_is_rolled_back_are_not_told(source: Source) -> None:
    source.sql("CREATE TABLE t (id serial PRIMARY KEY)")
    source.publish()
    source.sql("SELECT setval('t_id_seq', 50)", "SELECT nextval('t_id_seq')")
    source.transaction("INSERT INTO t VALUES (1)", "ROLLBACK")
    source.transaction("SAVEPOINT s", "INSERT INTO t VALUES (2)", "ROLLBACK TO s", "INSERT INTO t VALUES (3)")
    assert told(source) == [("I", "t", None, ("3",))]


def test_a_shape_is_told_again_after_ddl_and_before_the_tables_next_row(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    source.publish()
    source.sql(
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
        "ALTER TABLE t ADD n int",
        "INSERT INTO other VALUES (1)",
        "ALTER TABLE t RENAME n TO m",
        "INSERT INTO t VALUES (3, 3)",
    )
    interesting = [
        message.names if isinstance(message, Relation) else type(message).__name__
        for message in peek(source)
        if type(message).__name__ in {"Relation", "Insert"}
    ]
    assert interesting == [("id",), "Insert", "Insert", ("id",), "Insert", ("id", "m"), "Insert"]


def test_partitions_that_come_and_go_are_not_told(source: Source) -> None:
    source.sql(*PARTED, "ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE low REPLICA IDENTITY FULL")
    source.publish()
    source.sql(
        "INSERT INTO t VALUES (1), (11)",
        "ALTER TABLE t DETACH PARTITION low",
        "DROP TABLE high",
        "CREATE TABLE outer_part (id int PRIMARY KEY)",
        "INSERT INTO outer_part VALUES (25)",
        "ALTER TABLE t ATTACH PARTITION outer_part FOR VALUES FROM (20) TO (30)",
        "CREATE TABLE new_part PARTITION OF t FOR VALUES FROM (30) TO (40)",
    )
    assert told(source) == [
        ("I", "low", None, ("1",)),
        ("I", "high", None, ("11",)),
        ("I", "outer_part", None, ("25",)),
    ]
    identities = source.query(
        "SELECT relname::text, relreplident::text FROM pg_class "
        "WHERE relname IN ('t', 'low', 'new_part', 'outer_part') ORDER BY 1"
    )
    assert identities == [("low", "f"), ("new_part", "d"), ("outer_part", "d"), ("t", "f")]


def test_full_makes_the_writers_of_a_column_list_fail_and_we_refuse_it(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    publish(source, "FOR TABLE t (id)")
    source.sql("UPDATE t SET n = 2")
    with connect(source.url) as connection:
        [facts] = read_identities(connection, [T])
    change = stronger_identity(facts, ["n"])
    assert change is not None
    assert change.identity.kind == "full"
    problem = change_problem(facts, change)
    assert problem is not None
    assert "writers would fail" in str(problem)
    source.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    for statement in ("UPDATE t SET n = 3", "DELETE FROM t"):
        with pytest.raises(psycopg.Error, match=r"[Rr]eplica identity"):
            source.sql(statement)


@pytest.mark.parametrize("identity", ["DEFAULT", "USING INDEX t_id_m"])
def test_which_column_an_update_changed_is_not_told(source: Source, identity: str) -> None:
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, m int NOT NULL, read int, unread int)",
        "CREATE UNIQUE INDEX t_id_m ON t (id, m)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t VALUES (1, 0, 1, 0), (2, 0, 0, 1)",
    )
    source.publish()
    source.sql("UPDATE t SET unread = 1 WHERE id = 1", "UPDATE t SET read = 1 WHERE id = 2")
    assert told(source) == [("U", "t", None, ("1", "0", "1", "1")), ("U", "t", None, ("2", "0", "1", "1"))]
