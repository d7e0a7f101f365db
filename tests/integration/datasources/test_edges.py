"""What becomes of a query at its edges: the first batch again, tables that turn into others, and the like."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.capture.toast import Reread, lookups
from headrace.datasources import followed_tables
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.provision import prepare_slot
from headrace.postgres.slot import drop_slot
from integration.datasources.driven import ITEM, Query, as_stored

_START = {"startingOffsets": "earliest"}
_IDENTITY = (
    "ALTER TABLE item ALTER name SET NOT NULL, ADD CONSTRAINT by_name UNIQUE (name)",
    "ALTER TABLE item REPLICA IDENTITY USING INDEX by_name",
)


def kinds(rows: list[dict[str, Any]]) -> list[tuple[object, object]]:
    return [(row["_change_type"], row["id"]) for row in rows]


def test_the_first_batch_of_latest_is_repeated_as_it_was(query: Callable[..., Query]) -> None:
    """Spark keeps no first offset: it asks again, and by then `latest` is another place."""
    one = query(startingOffsets="latest")
    one.sql("INSERT INTO item VALUES (0, 'before')")
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.restart()
    one.sql("INSERT INTO item VALUES (2, 'b')")
    begin, end = one.reader.initialOffset(), one.offsets[1]
    assert kinds(one.batch(begin, end)) == [("insert", 1)]
    assert kinds(one.take(1)) == [("insert", 2)]


def test_what_came_before_a_table_was_altered_comes_first(query: Callable[..., Query]) -> None:
    """Else the checkpoint stays before rows that no start could read with the table's new columns."""
    one = query(**_START)
    one.step()
    one.restart()
    assert one.reader is not None, "planned before the table is altered"
    one.sql(
        "INSERT INTO item VALUES (1, 'a')",
        "ALTER TABLE item ADD more text",
        "INSERT INTO item VALUES (2, 'b')",
    )
    assert kinds(one.take(1)) == [("insert", 1)]
    with pytest.raises(HeadraceError, match="it has a column more that the query does not have") as caught:
        one.take(1)
    assert caught.value.kind is Kind.SCHEMA_CHANGED
    one.restart()
    [row] = one.take(1)
    assert (row["id"], row["more"]) == (2, None)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE item ADD more text", "the log has no column more"),
        ("ALTER TABLE item DROP name", "it has a column name that the query does not have"),
    ],
)
def test_rows_of_before_an_alteration_name_what_takes_them(
    query: Callable[..., Query], statement: str, said: str
) -> None:
    """A query that runs on a schedule loads the table anew each time, and came no further that way."""
    one = query(**_START)
    one.step()
    one.stop()
    one.sql("INSERT INTO item VALUES (1, 'a')", statement, "INSERT INTO item VALUES (2)")
    with pytest.raises(HeadraceError, match=said) as caught:
        one.take(2)
    assert "onSchemaChange=rescue or ignore" in caught.value.remedy
    one.restart(onSchemaChange="ignore")
    assert [row["id"] for row in one.take(2)] == [1, 2]
    one.restart(onSchemaChange="fail")
    one.sql("INSERT INTO item VALUES (3)")
    assert [row["id"] for row in one.take(1)] == [3]


def test_columns_that_exchange_their_names_end_the_query(query: Callable[..., Query]) -> None:
    """Of one type; whoever keeps a copy by name had each value under the other's name from then on."""
    one = query(**_START)
    one.sql("ALTER TABLE item ADD first text, ADD second text")
    one.step()
    one.sql(
        "INSERT INTO item VALUES (1, 'a', 'f', 's')",
        "ALTER TABLE item RENAME first TO third",
        "ALTER TABLE item RENAME second TO first",
        "ALTER TABLE item RENAME third TO second",
        "INSERT INTO item VALUES (2, 'b', 'f', 's')",
    )
    with pytest.raises(HeadraceError, match=r"under the name (first|second)") as caught:
        one.take(2)
    assert caught.value.kind is Kind.SCHEMA_CHANGED
    assert {row["id"] for row in one.rows} <= {1}


@pytest.mark.parametrize("envelope", ["rows", "changes", "elements"])
def test_a_key_that_the_log_does_not_carry_is_refused(query: Callable[..., Query], envelope: str) -> None:
    """A deleted row would have no key: whoever keeps rows by it would keep this one for ever."""
    one = query(envelope=envelope, **_START)
    one.sql(*_IDENTITY)

    def follow() -> None:
        one.step()
        one.sql("INSERT INTO item VALUES (1, 'a')", "DELETE FROM item")
        one.until(lambda: len(one.rows) == 2)

    with pytest.raises(HeadraceError, match="does not carry id of deleted rows of item") as caught:
        follow()
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert "tableKeys" in caught.value.remedy
    one.restart(tableKeys="name")
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')", "UPDATE item SET name = 'b'", "DELETE FROM item")
    one.until(lambda: len(one.rows) >= 4 - (envelope == "changes"))
    if envelope == "rows":
        assert [(row["_change_type"], row["name"]) for row in one.rows] == [
            ("insert", "a"), ("delete", "a"), ("insert", "b"), ("delete", "b"),
        ]  # fmt: skip


def test_a_key_that_the_log_stops_to_carry_ends_the_query(query: Callable[..., Query]) -> None:
    one = query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')", *_IDENTITY, "UPDATE item SET id = 2")
    with pytest.raises(HeadraceError, match="does not carry id of deleted rows of item") as caught:
        one.until(lambda: False)
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert kinds(one.rows) == [("insert", 1)]


_MEASURE = (
    "CREATE TABLE measure (at int PRIMARY KEY, name text NOT NULL) PARTITION BY RANGE (at)",
    "CREATE TABLE early PARTITION OF measure FOR VALUES FROM (0) TO (10)",
    "CREATE UNIQUE INDEX by_name ON early (name)",
)
_UNKEYED = ("ALTER TABLE early REPLICA IDENTITY USING INDEX by_name", "DELETE FROM measure")


def test_who_has_unknown_values_marked_sees_that_the_log_lacks_a_key(query: Callable[..., Query]) -> None:
    """As a mirror does, which reads the table again."""
    one = query(tables="measure", envelope="changes", unchangedToast="mark", **_START)
    one.sql(*_MEASURE)
    one.step()
    one.sql("INSERT INTO measure VALUES (1, 'a')", *_UNKEYED, "ALTER TABLE early REPLICA IDENTITY DEFAULT")
    one.take(2)
    last = one.rows[-1]
    assert (last["op"], last["source"]["identity"]) == ("d", ["name"])
    assert dict(last["before"]) == {"name": "a"}


@pytest.mark.parametrize("envelope", ["rows", "changes", "elements"])
def test_a_key_that_the_log_stops_to_carry_of_a_partition_ends_the_query(
    query: Callable[..., Query], envelope: str
) -> None:
    one = query(tables="measure", envelope=envelope, **_START)
    one.sql(*_MEASURE)
    one.step()
    one.sql("INSERT INTO measure VALUES (1, 'a'), (2, 'b')", "DELETE FROM measure WHERE at = 1")
    one.take(3)
    one.sql(*_UNKEYED)
    with pytest.raises(HeadraceError, match="does not carry at of deleted rows of measure") as caught:
        one.until(lambda: False)
    assert caught.value.kind is Kind.REPLICA_IDENTITY


@pytest.mark.parametrize("envelope", ["rows", "changes", "elements"])
def test_a_partitioned_table_that_is_emptied_as_a_whole(query: Callable[..., Query], envelope: str) -> None:
    one = query(tables="measure", envelope=envelope, **_START)
    one.sql(
        "CREATE TABLE measure (at int PRIMARY KEY) PARTITION BY RANGE (at)",
        "CREATE TABLE early PARTITION OF measure FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE late PARTITION OF measure FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (at)",
        "CREATE TABLE latest PARTITION OF late DEFAULT",
    )
    one.step()
    one.sql("INSERT INTO measure VALUES (1), (11)", "TRUNCATE measure", "INSERT INTO measure VALUES (2)")
    rows = one.take(4)
    if envelope == "rows":
        assert [(row["_change_type"], row["at"]) for row in rows[2:]] == [("truncate", None), ("insert", 2)]
    elif envelope == "changes":
        assert [(row["op"], row["table"], row["source"]["partition_of"]) for row in rows[2:]] == [
            ("t", "measure", None), ("c", "measure", None),
        ]  # fmt: skip
    else:
        assert [(row["op"], row["labels"]) for row in rows[2:]] == [
            ("truncate", ["measure"]), ("insert", ["measure"]),
        ]  # fmt: skip


_PARTED = (
    "CREATE TABLE measure (at int PRIMARY KEY) PARTITION BY RANGE (at)",
    "CREATE TABLE early PARTITION OF measure FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE late PARTITION OF measure FOR VALUES FROM (10) TO (20)",
    "INSERT INTO measure VALUES (1), (11)",
)
_MORE = "CREATE TABLE more PARTITION OF measure FOR VALUES FROM (20) TO (30)"
_FILLED = "INSERT INTO measure VALUES (2), (21)"


@pytest.mark.parametrize(
    "statements", [("TRUNCATE measure", _MORE), ("BEGIN", "TRUNCATE measure", _MORE, "COMMIT")]
)
@pytest.mark.parametrize("runs", [True, False])
def test_a_table_that_gets_a_partition_after_it_was_emptied(
    query: Callable[..., Query], statements: Sequence[str], *, runs: bool
) -> None:
    """Nobody has rows of the new partition, so none of them is in doubt."""
    one = query(tables="measure", startingOffsets="snapshot")
    one.sql(*_PARTED)
    one.settle()
    if not runs:
        one.stop()
    one.sql(*statements, _FILLED)
    rows = one.take(3)
    assert [(row["_change_type"], row["at"]) for row in rows] == [
        ("truncate", None), ("insert", 2), ("insert", 21),
    ]  # fmt: skip
    one.restart()
    repeated = one.batch(*one.offsets[-2:])
    assert repeated
    assert repeated == rows[-len(repeated) :]


@pytest.mark.parametrize(
    ("before", "emptying"),
    [
        ((_MORE, _FILLED), ("TRUNCATE early, late",)),
        ((), ("BEGIN", _MORE, _FILLED, "TRUNCATE early, late", "COMMIT")),
        ((), ("TRUNCATE early",)),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_partitions_that_are_emptied_beside_one_with_rows_end_a_query_of_rows(
    query: Callable[..., Query], before: Sequence[str], emptying: Sequence[str], *, runs: bool
) -> None:
    one = query(tables="measure", startingOffsets="snapshot")
    one.sql(*_PARTED)
    one.settle()
    one.sql(*before)
    if not runs:
        one.until(lambda: len(one.rows) == 2 + len(before))
        one.stop()
    one.sql(*emptying)
    with pytest.raises(HeadraceError, match="was truncated, and no row here says which rows are gone"):
        one.until(lambda: False)


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_a_table_that_is_renamed_ends_the_query(query: Callable[..., Query], envelope: str) -> None:
    """What it is called then is not followed: its changes would be left out in silence."""
    one = query(envelope=envelope, **_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.sql("ALTER TABLE item RENAME TO old_item", "INSERT INTO old_item VALUES (2, 'b')")
    with pytest.raises(HeadraceError, match="the table item was renamed to old_item") as caught:
        one.until(lambda: False)
    assert caught.value.kind is Kind.SCHEMA_CHANGED


def test_a_table_that_got_the_name_of_a_renamed_one_is_read(query: Callable[..., Query]) -> None:
    """The log has the renaming at each start, however often the new table is read."""
    one = query(envelope="changes", onUnloggedChange="snapshot", **_START)
    one.sql(f"CREATE PUBLICATION {one.slot} FOR ALL TABLES")
    one.step()
    one.stop()
    one.sql("INSERT INTO item VALUES (1, 'a')", "ALTER TABLE item RENAME TO old_item", ITEM)
    one.sql("INSERT INTO item VALUES (3, 'c')", "DELETE FROM old_item", "INSERT INTO item VALUES (4, 'd')")
    one.settle()
    one.sql("INSERT INTO item VALUES (5, 'e')")
    one.until(lambda: [dict(row["after"])["id"] for row in one.rows if row["after"]][-1:] == ["5"])


_GOOD = ("CREATE SCHEMA shop", "CREATE TABLE shop.good (id int PRIMARY KEY)")
_RENAMED = ("ALTER SCHEMA shop RENAME TO away", "INSERT INTO away.good VALUES (2)")
_BACK = ("ALTER SCHEMA away RENAME TO shop", "INSERT INTO shop.good VALUES (3)")


def begin_good(query: Callable[..., Query], tables: str | None) -> Query:
    """A query of a table in a schema, which has read a change; None: of its whole publication."""
    one = query(tables=str(tables), envelope="changes", startingOffsets="earliest")
    if tables is None:
        del one.options["tables"]
    one.sql(*_GOOD, f"CREATE PUBLICATION {one.slot} FOR TABLE shop.good")
    one.step()
    one.sql("INSERT INTO shop.good VALUES (1)")
    one.take(1)
    return one


@pytest.mark.long
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(("tables", "meanwhile"), [("shop.good", "shop.good"), (None, "away.good")])
def test_a_schema_that_is_called_otherwise_for_a_while(
    query: Callable[..., Query], tables: str | None, meanwhile: str, *, restarts: bool
) -> None:
    """Rows of a named table come under its name; those of a whole publication as the log names them."""
    one = begin_good(query, tables)
    if restarts:
        one.stop()
    one.sql(*_RENAMED, *_BACK)
    rows = one.take(2)
    assert [(row["table"], dict(row["after"])["id"]) for row in rows] == [
        (meanwhile, "2"), ("shop.good", "3"),
    ]  # fmt: skip


def test_a_schema_that_is_renamed_ends_the_next_start(query: Callable[..., Query]) -> None:
    one = begin_good(query, "shop.good")
    one.sql(*_RENAMED)
    one.restart()
    with pytest.raises(HeadraceError, match=r"there is no table shop\.good") as caught:
        one.until(lambda: False)
    assert caught.value.kind is Kind.BINDING


def test_queries_that_begin_at_once_share_a_publication(database: str) -> None:
    """The name of the publication has a default, so the queries of one program meet there."""
    tables = [TableName("public", f"t{number}") for number in range(4)]
    with connect(database) as connection:
        for table in tables:
            execute(connection, f"CREATE TABLE {table} (id int PRIMARY KEY)")
    failed: list[HeadraceError] = []
    for attempt in range(3):
        name, together = f"shared_{attempt}", threading.Barrier(len(tables))

        def begin(
            table: TableName, slot: str, name: str = name, together: threading.Barrier = together
        ) -> None:
            together.wait()
            try:
                prepare_slot(database, slot=slot, publication=name, tables=[table, tables[0]], create=True)
            except HeadraceError as error:
                failed.append(error)

        threads = [threading.Thread(target=begin, args=(table, f"at_once_{table.name}")) for table in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with connect(database) as connection:
            for table in tables:
                drop_slot(connection, f"at_once_{table.name}", timeout=60)
            sql = "SELECT count(*) FROM pg_publication_tables WHERE pubname = $1"
            assert [str(one) for one in failed] == []
            assert execute(connection, sql, (name,)) == [(len(tables),)]


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_heirs_are_left_to_a_program_that_looks_at_the_catalog_itself(
    query: Callable[..., Query], envelope: str
) -> None:
    """A mirror lets such a table wait alone; its query would end all others."""
    one = query(envelope=envelope, onUnloggedChange="ignore", **_START)
    one.sql("CREATE TABLE heir () INHERITS (item)")
    one.step()
    one.sql("INSERT INTO heir VALUES (1, 'b')", "INSERT INTO item VALUES (2, 'a')")
    assert len(one.take(1)) == 1


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_heirs_are_tables_of_their_own(query: Callable[..., Query], envelope: str) -> None:
    """The log names them, so what is read first must not count their rows as the table's."""
    one = query(envelope=envelope)
    one.sql(
        "CREATE TABLE heir (own int, PRIMARY KEY (id)) INHERITS (item)",
        "INSERT INTO item VALUES (1, 'a')",
        "INSERT INTO heir VALUES (2, 'b', 3)",
    )
    with pytest.raises(HeadraceError, match="heir") as caught:
        one.step()
    assert caught.value.kind is Kind.BINDING
    if envelope == "rows":
        return
    one.restart(tables="item, heir")
    one.settle()
    assert sorted((row["table"], dict(row["after"])["id"]) for row in one.rows) == [
        ("heir", "2"),
        ("item", "1"),
    ]
    one.sql("UPDATE item SET name = 'c'")
    one.until(lambda: len(one.rows) == 4)
    assert sorted(row["table"] for row in one.rows[2:]) == ["heir", "item"]


def test_a_large_value_of_a_row_whose_key_is_of_an_extension(query: Callable[..., Query]) -> None:
    """The operators of such a type are not where a reading session looks for them."""
    one = query(tables="page", **_START)
    one.sql(
        "CREATE EXTENSION ltree",
        "CREATE EXTENSION citext",
        "CREATE TABLE page (path ltree, name citext, body text, PRIMARY KEY (path, name))",
        "ALTER TABLE page ALTER body SET STORAGE EXTERNAL, ADD n int",
    )
    one.step()
    large = "x" * 9_000
    one.sql(f"INSERT INTO page VALUES ('a.b', 'Top', '{large}')", "UPDATE page SET n = 1")
    update = one.take(2)[1]
    assert (update["body"], update["n"], update["_unchanged"]) == (large, 1, None)


def test_a_file_of_first_rows_may_have_those_of_tables_that_are_read_already(
    query: Callable[..., Query], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"table": "item", "row": {"id": 1}}\n{"table": "tag", "row": {"id": 2}}\n')
    one = query(envelope="changes", bootstrap=str(file), newTables="snapshot")
    one.sql("CREATE TABLE tag (id int PRIMARY KEY)")
    one.options["tables"] = "item"
    with pytest.raises(HeadraceError, match="tag is not followed"):
        one.settle()
    one.restart(tables="item, tag")
    one.settle()
    assert [(row["table"], row["op"]) for row in one.rows] == [
        ("item", "t"), ("tag", "t"), ("item", "r"), ("tag", "r"),
    ], "the second attempt takes away what the first may have shown"  # fmt: skip
    one.sql("CREATE TABLE more (id int PRIMARY KEY)")
    file.write_text(file.read_text() + '{"table": "more", "row": {"id": 3}}\n')
    one.restart(tables="item, tag, more")
    one.settle()
    assert [(row["table"], row["op"]) for row in one.rows[4:]] == [("more", "r")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("publish = 'insert'", "does not publish update, delete, truncate"),
        ("publish_via_partition_root = true", "a truncated partition would not be seen"),
    ],
)
def test_a_publication_that_leaves_changes_out_is_refused(
    query: Callable[..., Query], options: str, said: str
) -> None:
    one = query(**_START)
    one.sql(f"CREATE PUBLICATION {one.slot} FOR TABLE item WITH ({options})")
    with pytest.raises(HeadraceError, match=said) as caught:
        one.step()
    assert caught.value.kind is Kind.PUBLICATION
    one.sql(f"ALTER PUBLICATION {one.slot} SET (publish = 'insert, update, delete, truncate')")
    one.sql(f"ALTER PUBLICATION {one.slot} SET (publish_via_partition_root = false)")
    one.restart()
    one.step()
    one.sql(f"ALTER PUBLICATION {one.slot} SET ({options})")
    one.restart()
    with pytest.raises(HeadraceError, match=said):
        one.step()


def test_a_truncated_partition_is_in_a_batch_that_is_repeated_with_more_tables(
    query: Callable[..., Query],
) -> None:
    one = query(tables="measure", envelope="changes", newTables="follow", **_START)
    one.sql(
        "CREATE TABLE measure (at int PRIMARY KEY) PARTITION BY RANGE (at)",
        "CREATE TABLE early PARTITION OF measure FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE late PARTITION OF measure DEFAULT",
    )
    one.step()
    one.sql("TRUNCATE early")
    [emptied] = one.take(1)
    one.restart(tables="measure, item")
    assert one.batch(*one.offsets[-2:]) == [emptied]
    assert emptied["source"]["partition_of"] == "measure"


def test_a_table_is_left_out_again_while_its_first_rows_are_read(query: Callable[..., Query]) -> None:
    one = query(envelope="changes", newTables="snapshot", **_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')", "CREATE TABLE tag (id int PRIMARY KEY)")
    one.take(1)
    one.restart(tables="item, tag")
    one.step()
    assert "snapshot" in one.offsets[-1]
    one.sql("DROP TABLE tag", "INSERT INTO item VALUES (2, 'b')")
    one.restart(tables="item")
    assert [dict(row["after"])["id"] for row in one.take(1)] == ["2"]


def test_a_lookup_waits_for_a_server_that_is_lost(database: str) -> None:
    table = TableName("public", "item")
    with connect(database) as connection, lookups(database) as look:
        execute(connection, ITEM)
        execute(connection, "INSERT INTO item VALUES (1, 'a')")
        reread = Reread(table, {"id": "integer"})
        assert look(reread, [("1",)], ("name",)) == {0: {"name": "a"}}
        ended = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = "
        mine = "current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        assert execute(connection, ended + mine) == [(1,)]
        assert look(reread, [("1",)], ("name",)) == {0: {"name": "a"}}


def test_a_lookup_leaves_out_what_was_dropped(database: str) -> None:
    """A task looks up what the catalog had when its batch was planned."""
    table, columns = TableName("public", "item"), ("gone", "name")
    with connect(database) as connection, lookups(database) as look:
        execute(connection, ITEM)
        execute(connection, "INSERT INTO item VALUES (1, 'a')")
        absent, null = (
            Reread(table, {"id": "integer"}, may_change=may_change) for may_change in (False, True)
        )
        assert look(absent, [("1",)], columns) == {0: {"name": "a"}}
        assert look(null, [("1",)], columns) == {0: {"gone": None, "name": "a"}}
        assert look(Reread(table, {"gone": "integer"}), [("1",)], columns) == {0: {}}
        execute(connection, "DROP TABLE item")
        assert look(absent, [("1",)], columns) == {0: {}}


@pytest.mark.long
def test_a_query_that_is_stopped_while_its_start_waits_leaves_no_slot(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The server makes a slot after every open transaction, also when nobody waits for it any more."""
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    with connect(database) as connection, connect(database, autocommit=False) as open_for_long:
        execute(connection, ITEM)
        reader = spark.readStream.format("postgres_cdc").option("url", database)
        reader = reader.option("slot", "spark_edges").option("publication", "edges")
        writer = reader.load("item").writeStream.format("noop")
        execute(open_for_long, "INSERT INTO item VALUES (1, 'a')")
        query = writer.option("checkpointLocation", tmp_path.as_uri()).start()
        Query.until_true(lambda: execute(connection, slots) == [(1,)])
        query.stop()
        Query.until_true(lambda: execute(connection, slots) == [(0,)])
        open_for_long.rollback()
        assert execute(connection, slots) == [(0,)]


def test_a_new_table_that_somebody_has_published_while_it_was_written_to(query: Callable[..., Query]) -> None:
    """Of such a transaction the log has only what came after that, and no snapshot has it before its end."""
    one = query(envelope="changes", newTables="snapshot", **_START)
    one.step()
    one.sql("CREATE TABLE tag (id int PRIMARY KEY)")
    with connect(one.url, autocommit=False) as writing:
        execute(writing, "INSERT INTO tag VALUES (1)")
        one.sql(f"ALTER PUBLICATION {one.slot} ADD TABLE tag")
        one.restart(tables="item, tag")

        def end() -> None:
            execute(writing, "INSERT INTO tag VALUES (2)")
            writing.commit()

        ending = threading.Timer(1, end)
        ending.start()
        one.settle()
        ending.join()
    one.sql("INSERT INTO item VALUES (3, 'c')")
    one.until(lambda: any(row["table"] == "item" for row in one.rows))
    assert {dict(row["after"])["id"] for row in one.rows} == {"1", "2", "3"}


def test_a_new_column_is_none_of_those_that_were_chosen(query: Callable[..., Query]) -> None:
    """With whole old rows the log has every column, whatever is asked for."""
    one = query(columns="id", **_START)
    one.sql("ALTER TABLE item REPLICA IDENTITY FULL")
    one.step()
    one.sql("ALTER TABLE item ADD more text DEFAULT 'd'", "INSERT INTO item VALUES (1, 'a')")
    assert kinds(one.take(1)) == [("insert", 1)]


_NARROWED = (
    "ALTER PUBLICATION {p} SET (publish = 'insert')",
    "UPDATE item SET name = 'lost'",
    "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')",
)
_LEFT = (
    "ALTER PUBLICATION {p} DROP TABLE item",
    "INSERT INTO item VALUES (2, 'lost')",
    "ALTER PUBLICATION {p} ADD TABLE item",
)


@pytest.mark.parametrize(
    ("altering", "said"), [(_NARROWED, "was altered"), (_LEFT, "has lost the table public.item for a while")]
)
def test_a_publication_that_was_altered_while_nothing_ran_is_told_of(
    query: Callable[..., Query], altering: Sequence[str], said: str
) -> None:
    """It is as it was, and what was written between is in no log."""
    one = altered_while_stopped(query(**_START), altering)
    with pytest.raises(HeadraceError, match=said) as caught:
        one.step()
    assert caught.value.kind is Kind.PUBLICATION
    one.restart(failOnDataLoss="false")
    one.sql("INSERT INTO item VALUES (3, 'c')")
    assert kinds(one.take(1)) == [("insert", 3)]


def altered_while_stopped(one: Query, altering: Sequence[str]) -> Query:
    """The query, which has read a row and starts again behind an alteration."""
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.stop()
    one.sql(*(sql.format(p=one.slot) for sql in altering))
    one.restart()
    return one


def repeat_first_batch(one: Query) -> None:
    """The first batch and the next, as after a process that was killed in the first."""
    one.batch(as_stored(one.reader.initialOffset()), one.offsets[1])
    one.step()


@pytest.mark.parametrize(
    ("altering", "said"),
    [
        (_LEFT, r"has lost the table public\.item for a while"),
        (("ALTER TABLE item ALTER name TYPE varchar(9) USING upper(name)",), "rows changed"),
    ],
)
def test_what_was_altered_before_the_first_batch_is_repeated_is_told_of(
    query: Callable[..., Query], altering: Sequence[str], said: str
) -> None:
    """A new process is asked for the first offset again, which knows only how everything is now."""
    one = altered_while_stopped(query(**_START, envelope="changes"), altering)
    with pytest.raises(HeadraceError, match=said):
        repeat_first_batch(one)


def test_a_publication_that_is_altered_while_it_is_read_is_told_of(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.sql(*(sql.format(p=one.slot) for sql in _NARROWED))
    with pytest.raises(HeadraceError, match="was altered while it was read"):
        one.step()


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_publication_that_is_altered_while_a_batch_is_repeated_is_told_of(
    query: Callable[..., Query], *, is_whole: bool
) -> None:
    one = of_whole_publication(query) if is_whole else query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.restart()
    one.batch(one.offsets[-2], one.offsets[-1])
    one.sql(*(sql.format(p=one.slot) for sql in _NARROWED))
    with pytest.raises(HeadraceError, match="was altered while it was read"):
        one.step()


def test_other_work_on_a_publication_and_its_tables_is_none_of_ours(query: Callable[..., Query]) -> None:
    one = query(**_START)
    one.step()
    one.stop()
    one.sql(
        "CREATE TABLE another (id int PRIMARY KEY)",
        f"ALTER PUBLICATION {one.slot} ADD TABLE another",
        f"COMMENT ON PUBLICATION {one.slot} IS 'x'",
        "GRANT SELECT ON item TO PUBLIC",
        "VACUUM FULL item",
        "INSERT INTO item VALUES (1, 'a')",
    )
    one.restart()
    assert kinds(one.take(1)) == [("insert", 1)]


def test_a_table_that_is_dropped_has_left_nothing_behind(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = query(**_START, onUnloggedChange="ignore")
    one.step()
    one.sql("DROP TABLE item")
    one.step()


@pytest.mark.parametrize("back", [False, True])
def test_a_running_query_looks_at_its_publication(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """The log holds nothing of a table that has left, and does not say so."""
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.sql(f"ALTER PUBLICATION {one.slot} DROP TABLE item", "INSERT INTO item VALUES (2, 'lost')")
    if back:
        one.sql(f"ALTER PUBLICATION {one.slot} ADD TABLE item")
    with pytest.raises(HeadraceError, match=r"has lost the table public\.item") as caught:
        one.step()
    assert caught.value.kind is Kind.PUBLICATION


def of_whole_publication(query: Callable[..., Query], **options: str) -> Query:
    """A query that follows whatever its publication has."""
    one = query(envelope="changes", **_START, **options)
    del one.options["tables"]
    one.sql(
        f"CREATE PUBLICATION {one.slot} FOR TABLE item",
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"ALTER PUBLICATION {one.slot} ADD TABLE other",
    )
    return one


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_a_table_that_leaves_a_publication_which_is_followed_as_it_is_is_told_of(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, *, runs: bool, back: bool
) -> None:
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = of_whole_publication(query)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    if not runs:
        one.stop()
    one.sql(*(sql.format(p=one.slot) for sql in _LEFT[: 3 if back else 2]))
    with pytest.raises(HeadraceError, match=r"has lost the table public\.item"):
        one.step()


def test_a_publication_that_is_followed_as_it_is_may_grow_and_lose_tables_that_are_dropped(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = of_whole_publication(query, onUnloggedChange="ignore")
    one.step()
    one.sql("INSERT INTO other VALUES (1)")
    one.take(1)
    one.sql("CREATE TABLE third (id int PRIMARY KEY)", f"ALTER PUBLICATION {one.slot} ADD TABLE third")
    one.sql("DROP TABLE other", "INSERT INTO third VALUES (1)")
    one.take(1)
    one.stop()
    one.sql("DROP TABLE third", "INSERT INTO item VALUES (1, 'a')")
    one.take(1)


def test_a_loss_that_is_allowed_is_told_of_once(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next start, which may allow none, goes on from there."""
    monkeypatch.setattr(followed_tables, "_WATCH_SECONDS", 0.0)
    one = query(failOnDataLoss="false", **_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.sql(*(sql.format(p=one.slot) for sql in _LEFT), "INSERT INTO item VALUES (3, 'c')")
    one.take(1)
    one.restart(failOnDataLoss="true")
    one.sql("INSERT INTO item VALUES (4, 'd')")
    one.take(1)


def test_a_comment_at_the_end_of_a_condition_ends_with_it(query: Callable[..., Query]) -> None:
    one = query(where="id > 1 -- the first is ours", startingOffsets="snapshot")
    one.sql("INSERT INTO item VALUES (1, 'a'), (2, 'b')")
    assert kinds(one.take(1)) == [("insert", 2)]
    one.sql("INSERT INTO item VALUES (0, 'c'), (3, 'd')")
    assert kinds(one.take(1)) == [("insert", 3)]
