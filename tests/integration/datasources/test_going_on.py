"""What becomes of a checkpoint when its slot, its tables or its table's columns are not what they were?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.datasources import catalog_watch
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from integration.datasources.driven import ITEM, Query
from support.servers import short_lived_server

_TAG = "CREATE TABLE tag (id int PRIMARY KEY, word text)"
_START = {"startingOffsets": "earliest"}


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] if "id" in row else dict(row["after"] or row["before"])["id"] for row in rows]


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["source"]["commit_lsn"], row["source"]["commit_seq"]


# Lost changes.


def test_a_slot_that_was_recreated_ends_the_query_or_is_gone_on_with(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    """Drasi's hole 2: never a silent gap. Said once; then the checkpoint stands after the gap."""
    one = query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.stop()
    with connect(one.url) as connection:
        drop_slot(connection, one.slot, timeout=60)
    one.sql("INSERT INTO item VALUES (2, 'lost')")
    one.sql(f"SELECT pg_create_logical_replication_slot('{one.slot}', 'pgoutput')")
    with pytest.raises(HeadraceError, match="the changes between are lost"):
        one.until(lambda: False)
    one.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        one.step()
    [said] = [record.getMessage() for record in caplog.records if "missing" in record.getMessage()]
    assert one.offsets[-2]["lsn"] in said
    assert one.offsets[-1]["lsn"] in said
    one.sql("INSERT INTO item VALUES (3, 'c')")
    assert ids(one.take(1)) == [3]
    caplog.clear()
    one.restart(failOnDataLoss="true")
    one.sql("INSERT INTO item VALUES (4, 'd')")
    assert ids(one.take(1)) == [4], "the checkpoint is a good one again"
    assert [record for record in caplog.records if "missing" in record.getMessage()] == []


def test_a_slot_that_is_gone_is_recreated_also_while_the_query_runs(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    one = query(failOnDataLoss="false", **_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.sql(f"ALTER PUBLICATION {one.slot} OWNER TO CURRENT_USER")  # it stays, with all that it is
    one.stop()
    with connect(one.url) as connection:
        drop_slot(connection, one.slot, timeout=60)
    one.sql("INSERT INTO item VALUES (2, 'lost')")
    one.step()
    one.sql("INSERT INTO item VALUES (3, 'c')")
    assert ids(one.take(1)) == [3]
    _take_away(one)
    one.sql("INSERT INTO item VALUES (5, 'lost, perhaps')")
    one.until(lambda: sum("missing" in record.getMessage() for record in caplog.records) == 2)
    one.sql("INSERT INTO item VALUES (6, 'f')")
    one.until(lambda: 6 in ids(one.rows))
    one.restart(createSlot="false")
    with connect(one.url) as connection:
        drop_slot(connection, one.slot, timeout=60)
    with pytest.raises(HeadraceError, match="no replication slot") as caught:
        one.step()
    assert caught.value.kind is Kind.SLOT_UNKNOWN


def _take_away(one: Query) -> None:
    """Drop a slot that is read: its reader is faster than most, so it is tried again."""
    ending = "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = $1"

    def is_dropped() -> bool:
        execute(connection, ending, (one.slot,))
        try:
            return drop_slot(connection, one.slot, timeout=0)
        except HeadraceError as error:
            if error.kind is not Kind.SLOT_IN_USE:
                raise
            return False

    with connect(one.url) as connection:
        one.until_true(is_dropped)


def test_another_server_is_noticed_also_while_the_first_rows_are_read(query: Callable[..., Query]) -> None:
    """The offsets of that time say whose log it is, as those of the stream do; no loss is allowed there."""
    one = query()
    one.sql("INSERT INTO item SELECT g, 'x' FROM generate_series(1, 10) g")
    one.step()
    assert "snapshot" in one.offsets[-1]
    assert {"system", "timeline", "database"} <= one.offsets[0].keys()
    with short_lived_server() as other:
        with connect(other.url) as connection:
            execute(connection, ITEM)
            execute(connection, f"CREATE PUBLICATION {one.slot} FOR TABLE item")
            execute(connection, f"SELECT pg_create_logical_replication_slot('{one.slot}', 'pgoutput')")
        for losing in ("true", "false"):
            one.restart(url=other.url, failOnDataLoss=losing)
            with pytest.raises(HeadraceError, match="another database system"):
                one.step()
    one.restart(url=one.url)
    one.until(lambda: "snapshot" not in one.offsets[-1])
    assert {row["_snapshot_attempt"] for row in one.rows} == {1, 2}


def test_a_slot_that_kept_too_much_log_is_recreated(caplog: pytest.LogCaptureFixture) -> None:
    small = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with short_lived_server(settings=small) as server:
        one = Query(server.url, tables="item", **_START)
        one.sql(ITEM)
        one.step()
        one.stop()
        for _ in range(4):
            one.sql("SELECT pg_logical_emit_message(false, '', repeat('x', 1000))", "SELECT pg_switch_wal()")
        one.sql("INSERT INTO item VALUES (1, 'lost')", "CHECKPOINT")
        with pytest.raises(HeadraceError) as caught:
            one.until(lambda: False)
        assert caught.value.kind is Kind.SLOT_LOST
        one.restart(failOnDataLoss="false")
        one.step()
        assert "was lost" in caplog.text
        one.sql("INSERT INTO item VALUES (2, 'b')")
        assert ids(one.take(1)) == [2]
        one.close()


@pytest.mark.long
def test_log_that_was_removed_behind_the_servers_back_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    """The server shows the slot as sound; only reading tells."""
    with short_lived_server() as server:
        one = Query(server.url, tables="item", failOnDataLoss="false", **_START)
        one.sql(ITEM)
        one.step()
        one.stop()
        one.sql("SELECT pg_switch_wal()", "INSERT INTO item VALUES (1, 'lost')")
        with connect(one.url) as connection:
            [(name, folder)] = execute(
                connection, "SELECT pg_walfile_name(pg_current_wal_lsn()), current_setting('data_directory')"
            )
        one.sql("SELECT pg_switch_wal()", "CHECKPOINT")
        (Path(folder) / "pg_wal" / name).unlink()
        one.until(lambda: "was lost" in caplog.text)
        one.sql("INSERT INTO item VALUES (2, 'b')")
        assert ids(one.take(1)) == [2]
        one.close()


# Temporary slots.


def test_a_temporary_slot_gives_rows_and_changes_and_leaves_nothing(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    one = query(temporarySlot="true", backlogBytes="1")
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.step()
    one.sql("INSERT INTO item VALUES (2, 'b')")
    one.until(lambda: len(one.rows) == 2)
    assert [(row["id"], row["_snapshot"]) for row in one.rows] == [(1, True), (2, False)]
    slots = "SELECT temporary FROM pg_replication_slots WHERE slot_name = $1"
    with connect(one.url) as connection:
        assert execute(connection, slots, (one.slot,)) == [(True,)]
        one.stop()
        one.sql("INSERT INTO item VALUES (3, 'lost')")
        with pytest.raises(HeadraceError, match=r"temporary slot .* has ended") as caught:
            one.step()
        assert caught.value.kind is Kind.SLOT_LOST
        one.restart(failOnDataLoss="false")
        one.step()
        assert "was temporary" in caplog.text
        one.sql("INSERT INTO item VALUES (4, 'd')")
        assert ids(one.take(1)) == [4]
        execute(
            connection,
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1",
            (one.slot,),
        )
        one.until(lambda: caplog.text.count("was temporary") == 2)
        one.sql("INSERT INTO item VALUES (5, 'e')")
        assert ids(one.take(1)) == [5]
        one.stop()
        one.until_true(lambda: execute(connection, slots, (one.slot,)) == [])


def test_a_temporary_slot_does_not_take_the_place_of_one_that_stays(query: Callable[..., Query]) -> None:
    one = query(temporarySlot="true")
    one.sql(f"SELECT pg_create_logical_replication_slot('{one.slot}', 'pgoutput')")
    with pytest.raises(HeadraceError, match="it is not temporary"):
        one.step()


# A part of a table.


def test_only_the_rows_and_columns_that_were_asked_for_come(query: Callable[..., Query]) -> None:
    """An update that leads across the condition is an insert or a delete, as PostgreSQL tells it."""
    one = query(columns="id, name", where="id < 100")
    one.sql(
        "ALTER TABLE item ADD secret text",
        "INSERT INTO item VALUES (1, 'a', 'hidden'), (100, 'no', 'hidden')",
    )
    one.settle()
    assert ids(one.rows) == [1]
    with connect(one.url) as connection:
        [published] = execute(
            connection,
            "SELECT attnames::text[], rowfilter FROM pg_publication_tables WHERE pubname = $1",
            (one.slot,),
        )
    assert published == (["id", "name"], "(id < 100)")
    one.sql(
        "INSERT INTO item VALUES (2, 'b', 'hidden'), (101, 'no', 'hidden')",
        "UPDATE item SET id = 102 WHERE id = 2",
        "UPDATE item SET id = 3, name = 'in' WHERE id = 101",
        "DELETE FROM item WHERE id >= 100",
        "UPDATE item SET name = 'c' WHERE id = 3",
    )
    found = [(row["_change_type"], row["id"], row["name"]) for row in one.take(4)]
    assert found == [
        ("insert", 2, "b"),
        ("delete", 2, None),
        ("insert", 3, "in"),
        ("update_postimage", 3, "c"),
    ]
    for condition in ("id < 200", ""):
        one.stop()
        one.options.pop("where")
        one.options |= {"where": condition} if condition else {}
        with pytest.raises(HeadraceError, match=r"\(id < 100\)") as caught:
            one.step()
        assert caught.value.kind is Kind.PUBLICATION
    one.restart(where=" (id<100) ", columns="id, name, secret")
    with pytest.raises(HeadraceError, match="hides columns of item: secret"):
        one.step()
    one.restart(where="100 > id", columns="id")
    with pytest.raises(HeadraceError, match="required are those where 100 > id"):
        one.step()
    one.restart(where="(((id)) < (100))")
    one.sql("INSERT INTO item VALUES (4, 'd', 'hidden')")
    assert [row["id"] for row in one.take(1)] == [4]


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_a_row_that_comes_to_satisfy_the_condition_has_its_large_values(
    query: Callable[..., Query], envelope: str
) -> None:
    """PostgreSQL logs its update as an insert, without the large values that the update did not touch."""
    one = query(columns="id, name, body", where="id < 100", envelope=envelope)
    one.sql("ALTER TABLE item ADD body text", "ALTER TABLE item ALTER body SET STORAGE EXTERNAL")
    one.step()
    large = "x" * 9_000
    one.sql(f"INSERT INTO item VALUES (101, 'a', '{large}'), (102, 'b', '{large}')")
    one.sql("UPDATE item SET id = id - 100", "DELETE FROM item WHERE id = 2")
    first, second, _ = one.take(3)
    if envelope == "changes":
        assert [dict(row["after"]).get("body") for row in (first, second)] == [large, None]
        assert "body" not in dict(second["after"])
        return
    assert [(row["body"], row["_unchanged"]) for row in (first, second)] == [(large, None), (None, ["body"])]


def test_many_tables_are_filtered_each_by_its_own_condition(query: Callable[..., Query]) -> None:
    one = query(tables="item, tag", where='{"tag": "id > 1"}')
    one.sql(_TAG, "INSERT INTO item VALUES (1, 'a')", "INSERT INTO tag VALUES (1, 'no'), (2, 'yes')")
    one.settle()
    one.sql("INSERT INTO tag VALUES (0, 'no'), (3, 'yes')", "INSERT INTO item VALUES (0, 'a')")
    one.until(lambda: len(one.rows) >= 4)
    assert sorted((row["table"], int(key)) for row, key in zip(one.rows, ids(one.rows), strict=True)) == [
        ("item", 0), ("item", 1), ("tag", 2), ("tag", 3),
    ]  # fmt: skip


def test_some_columns_of_one_of_many_tables(query: Callable[..., Query]) -> None:
    one = query(tables="item, tag", columns='{"tag": ["id"]}')
    one.sql(_TAG, "INSERT INTO item VALUES (1, 'a')", "INSERT INTO tag VALUES (1, 'hidden')")
    one.settle()
    one.sql(
        "INSERT INTO tag VALUES (2, 'hidden')", "ALTER TABLE tag ADD more text", "UPDATE tag SET more = 'm'"
    )
    one.until(lambda: len(one.rows) >= 5)
    found = [(row["table"], row["op"], dict(row["after"])) for row in one.rows]
    assert sorted(found[:2], key=str) == [("item", "r", {"id": "1", "name": "a"}), ("tag", "r", {"id": "1"})]
    assert found[2:] == [("tag", "c", {"id": "2"}), ("tag", "u", {"id": "1"}), ("tag", "u", {"id": "2"})]
    one.restart(columns='{"tag": ["id", "word"]}')
    with pytest.raises(HeadraceError, match="hides columns of tag: word"):
        one.step()
    one.restart(columns='{"tag": ["id"], "item": ["id"]}')
    with pytest.raises(HeadraceError, match="sends also the columns of item: name"):
        one.step()


def test_a_publication_of_somebody_else_is_compared_with_what_is_asked(query: Callable[..., Query]) -> None:
    one = query(**_START)
    one.sql(f"CREATE PUBLICATION {one.slot} FOR TABLE item (id) WHERE (id > 5)")
    with pytest.raises(HeadraceError, match=r"sends the rows where \(id > 5\) of item, required are all"):
        one.step()
    one.restart(where="id > 5")
    with pytest.raises(HeadraceError, match=r"hides columns of item: name\..*ADD TABLE.*WHERE"):
        one.step()
    one.restart(columns="id")
    one.step()
    one.sql("INSERT INTO item VALUES (5, 'no'), (6, 'yes')")
    assert ids(one.take(1)) == [6]


def test_a_condition_that_would_keep_writers_from_writing_is_refused(query: Callable[..., Query]) -> None:
    with pytest.raises(HeadraceError, match="filtered by name") as caught:
        query(where="name = 'a'").step()
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    whole = query(columns="id", envelope="changes")
    whole.sql("ALTER TABLE item REPLICA IDENTITY FULL")
    with pytest.raises(HeadraceError, match="with a list of columns its writers would fail"):
        whole.step()


def test_columns_of_a_table_whose_old_rows_are_whole_are_left_out_when_they_are_read(
    query: Callable[..., Query],
) -> None:
    """A list of columns would make its writers fail, so there is none; with the old rows any filter does."""
    one = query(columns="id", where="name <> 'no'")
    one.sql("ALTER TABLE item REPLICA IDENTITY FULL", "INSERT INTO item VALUES (1, 'a'), (2, 'no')")
    one.settle()
    one.sql("UPDATE item SET name = 'b'")
    one.until(lambda: len(one.rows) >= 3)
    assert [(row["_change_type"], row["id"]) for row in one.rows] == [
        ("insert", 1), ("update_postimage", 1), ("insert", 2),
    ]  # fmt: skip
    assert "name" not in one.rows[0]


# New tables.


@pytest.mark.parametrize("policy", ["follow", "snapshot"])
def test_a_table_that_is_added_to_a_checkpoint(query: Callable[..., Query], policy: str) -> None:
    one = query(tables="item", envelope="changes")
    one.sql(_TAG, "INSERT INTO tag VALUES (1, 'old')", "INSERT INTO item VALUES (1, 'a')")
    one.settle()
    one.sql("INSERT INTO item VALUES (2, 'b')")
    one.until(lambda: len(one.rows) == 2)
    one.restart(tables="item, tag")
    with pytest.raises(HeadraceError, match=r"does not follow tag.*newTables=snapshot"):
        one.step()
    one.restart(newTables=policy)
    one.sql("INSERT INTO item VALUES (3, 'c')")
    one.step()
    one.sql("INSERT INTO tag VALUES (2, 'new')", "UPDATE tag SET word = 'newer' WHERE id = 1")
    first = [("tag", "r", "old")] if policy == "snapshot" else []
    wanted = [*first, ("item", "c", "c"), ("tag", "c", "new"), ("tag", "u", "newer")]
    one.until(lambda: len(one.rows) >= 2 + len(wanted))
    found = [
        (row["table"], row["op"], dict(row["after"]).get("name") or dict(row["after"]).get("word"))
        for row in one.rows[2:]
    ]
    assert found == wanted
    places = [place(row) for row in one.rows if row["table"] == "tag"]
    assert places == sorted(places)
    one.restart(newTables="refuse")
    one.sql("INSERT INTO tag VALUES (3, 'c')")
    assert ids(one.take(1)) == ["3"]


def test_killed_while_the_rows_of_a_new_table_are_read(query: Callable[..., Query]) -> None:
    one = query(tables="item", envelope="changes", maxBytesPerTrigger="32k")
    one.sql(_TAG, "INSERT INTO tag SELECT g, repeat('x', 100) FROM generate_series(1, 600) g")
    one.settle()
    one.restart(tables="item, tag", newTables="snapshot")
    one.step()
    one.step()
    assert one.offsets[-1]["snapshot"]["tables"] == ["public.tag"]
    one.sql("DELETE FROM tag WHERE id = 1", "UPDATE tag SET word = 'new' WHERE id = 2")
    again = one.offsets[-2:]
    one.restart()
    assert one.batch(*again) == [], "its snapshot died with the process"
    one.settle()
    one.sql("DELETE FROM tag WHERE id = 3", "UPDATE tag SET word = 'newer' WHERE id = 4")
    one.until(lambda: any(row["op"] == "u" for row in one.rows))
    kept: dict[str, tuple[int, int, str, str | None]] = {}
    for row in one.rows:
        if row["op"] == "t":
            kept.clear()
            continue
        value = dict(row["after"] or row["before"])
        if place(row) >= kept.get(value["id"], (0, 0))[:2]:
            kept[value["id"]] = (*place(row), row["op"], value.get("word"))
    living = {key: word for key, (_, _, op, word) in kept.items() if op != "d"}
    assert living == {"2": "new", "4": "newer", **{str(g): "x" * 100 for g in range(5, 601)}}
    assert [row["op"] for row in one.rows if row["op"] != "r"] == ["t", "d", "u"], (
        "what is read is not told again"
    )


def test_first_rows_that_are_read_again_are_told_of(
    query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger of one batch would read them for ever, and nothing else."""
    one = query()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.step()
    assert "read again" not in caplog.text
    one.restart()
    one.settle()
    assert caplog.text.count("read again") == 1
    assert [row["_snapshot_attempt"] for row in one.rows] == [1, 2, 2]


def test_a_batch_that_is_repeated_has_the_tables_that_it_had(query: Callable[..., Query]) -> None:
    one = query(tables="item", envelope="changes", **_START)
    one.sql(_TAG, f"CREATE PUBLICATION {one.slot} FOR ALL TABLES")
    one.step()
    one.sql("INSERT INTO tag VALUES (1, 'b')", "INSERT INTO item VALUES (1, 'a')")
    first = one.take(1)
    again = one.offsets[-2:]
    one.restart(tables="item, tag", newTables="follow")
    assert one.batch(*again) == first
    one.step()
    one.sql("INSERT INTO tag VALUES (2, 'c')")
    assert ids(one.take(1)) == ["2"]


def test_the_checkpoint_of_one_table_is_not_that_of_another(query: Callable[..., Query]) -> None:
    one = query(**_START)
    one.sql(_TAG)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    one.restart(tables="tag")
    with pytest.raises(HeadraceError, match="the checkpoint follows item, not tag"):
        one.step()


def test_offsets_that_name_no_tables_are_those_of_an_earlier_version(query: Callable[..., Query]) -> None:
    one = query(**_START)
    one.step()
    one.sql("INSERT INTO item VALUES (1, 'a')")
    one.take(1)
    kept = {name: one.offsets[-1][name] for name in ("version", "lsn")}
    one.offsets = [kept]
    one.restart()
    one.sql("INSERT INTO item VALUES (2, 'b')")
    assert ids(one.take(1)) == [2]
    assert one.offsets[-1]["tables"] == ["public.item"]


# Altered tables.


@pytest.fixture
def _looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is looked at when a query begins, and not again when something halts the machine."""
    monkeypatch.setattr(catalog_watch, "_SECONDS", 600.0)


@pytest.mark.usefixtures("_looks_once")
def test_an_altered_table_is_gone_on_with_and_nothing_is_lost(query: Callable[..., Query]) -> None:
    """A new column, one whose type changes, one that is dropped: large values that an update left out too."""
    one = query(onSchemaChange="rescue", metadataPrefix="cdc_", excludeColumns="unseen", **_START)
    one.sql(
        "ALTER TABLE item ADD price int, ADD gone text, ADD unseen int",
        "ALTER TABLE item ALTER name SET STORAGE EXTERNAL, ALTER gone SET STORAGE EXTERNAL",
    )
    one.step()
    large = "x" * 9_000
    one.sql(
        f"INSERT INTO item VALUES (1, '{large}', 5, '{large}', 1)",
        "ALTER TABLE item DROP gone, ADD more text, ADD doubled int",
        "ALTER TABLE item ALTER price TYPE text USING 'about ' || price",
        "UPDATE item SET more = 'm' WHERE id = 1",
        "INSERT INTO item VALUES (2, 'b', '7', 1, NULL, 2)",
        "UPDATE item SET id = 3, price = 'seven' WHERE id = 2",
    )
    first, update, insert, *moved = one.take(5)
    assert (first["price"], first["gone"], first["cdc_rescued_data"]) == (5, large, None)
    assert (update["name"], update["price"], update["gone"], update["cdc_unchanged"]) == (
        large,
        None,
        None,
        None,
    )
    assert update["cdc_rescued_data"] == '{"more": "m", "doubled": null, "price": "about 5"}'
    assert (insert["price"], insert["cdc_rescued_data"]) == (7, '{"more": null, "doubled": "2"}')
    assert [(row["cdc_change_type"], row["id"], row["cdc_rescued_data"]) for row in moved] == [
        ("delete", 2, None),
        ("insert", 3, '{"more": null, "doubled": "2", "price": "seven"}'),
    ]
    assert "unseen" not in first
    one.restart(onUnloggedChange="ignore")  # the values of price that were there were computed anew
    one.sql("UPDATE item SET more = 'n' WHERE id = 3")
    [row] = one.take(1)
    assert (row["more"], row["price"], row["cdc_rescued_data"]) == ("n", "seven", None)


def test_rows_of_before_a_column_was_added_are_not_in_the_way_of_a_restart(
    query: Callable[..., Query],
) -> None:
    """The log has none of a column that the query has by now: the table has it."""
    one = query(onSchemaChange="ignore", **_START)
    one.step()
    one.stop()
    large = "x" * 9_000
    one.sql(
        f"INSERT INTO item VALUES (1, '{large}')",
        "UPDATE item SET name = name || 'y'",
        "ALTER TABLE item ADD more text DEFAULT 'd'",
        "INSERT INTO item VALUES (2, 'b')",
    )
    assert [(row["id"], row["more"], row["_unchanged"]) for row in one.take(3)] == [
        (1, "d", None), (1, "d", None), (2, "d", None),
    ]  # fmt: skip


@pytest.mark.usefixtures("_looks_once")
def test_what_may_be_ignored_and_what_not(query: Callable[..., Query]) -> None:
    one = query(onSchemaChange="ignore", **_START)
    one.sql("ALTER TABLE item ADD price int")
    one.step()
    one.sql("ALTER TABLE item DROP name, ADD more text", "INSERT INTO item VALUES (1, 5, 'm')")
    [row] = one.take(1)
    assert (row["id"], row["name"], row["price"], "more" in row) == (1, None, 5, False)
    assert "_rescued_data" not in row
    one.sql("ALTER TABLE item ALTER price TYPE text", "INSERT INTO item VALUES (2, 'five', 'm')")
    with pytest.raises(HeadraceError, match=r"item\.price") as caught:
        one.take(1)
    assert caught.value.kind is Kind.VALUE


@pytest.mark.usefixtures("_looks_once")
def test_a_key_that_changes_ends_the_query_whatever_is_allowed(query: Callable[..., Query]) -> None:
    one = query(onSchemaChange="rescue", **_START)
    one.step()
    one.sql("ALTER TABLE item ALTER id TYPE bigint", "INSERT INTO item VALUES (1, 'a')")
    with pytest.raises(HeadraceError, match="the column id has another type") as caught:
        one.take(1)
    assert caught.value.kind is Kind.SCHEMA_CHANGED


def test_the_first_rows_are_rescued_as_the_changes_are(query: Callable[..., Query]) -> None:
    one = query(onSchemaChange="rescue")
    one.sql("ALTER TABLE item ADD price numeric(6,2)", "INSERT INTO item VALUES (1, 'a', 'NaN')")
    one.settle()
    one.sql("UPDATE item SET name = 'b'")
    one.until(lambda: len(one.rows) == 2)
    assert [(row["price"], row["_rescued_data"]) for row in one.rows] == [(None, '{"price": "NaN"}')] * 2


# The end.


def test_a_stopped_query_names_the_slot_that_it_leaves(
    query: Callable[..., Query], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = query(**_START), query(temporarySlot="true", **_START)
    one.step()
    other.step()
    one.stop()
    other.stop()
    [said] = [line for line in capfd.readouterr().err.splitlines() if "replication slot" in line]
    assert f"SELECT pg_drop_replication_slot('{one.slot}')" in said
    one.stop()
    assert capfd.readouterr().err == ""
