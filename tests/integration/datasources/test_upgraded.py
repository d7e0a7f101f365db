"""Does a checkpoint go on with a server that pg_upgrade has made, and with no other one?"""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from integration.datasources.driven import Query
from support.upgrading import end_of_log, is_confirmed, stop_autovacuum, two_servers, upgrade

TABLES = (
    "CREATE TABLE item (id int PRIMARY KEY, name text)",
    "CREATE TABLE other (id int PRIMARY KEY)",
    "CREATE SCHEMA whole",
    "CREATE TABLE whole.narrow (id int PRIMARY KEY)",
    "INSERT INTO item SELECT i, 'n' || i FROM generate_series(1, 9) AS i",
)


def names(query: Query) -> list[str]:
    return [row["name"] for row in query.rows]


def caught_up(query: Query) -> bool:
    """One batch at most, and whether the slot is confirmed up to what was committed."""
    query.step()
    return is_confirmed(query.url, query.slot, end_of_log(query.url))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_checkpoint_goes_on_after_pg_upgrade_where_its_option_says_so() -> None:
    with two_servers() as (old, new):
        before = old.create_database("items")
        with connect(before) as connection:
            for statement in TABLES:
                execute(connection, statement)
            execute(connection, "CREATE PUBLICATION p_all FOR ALL TABLES")
            execute(connection, "CREATE PUBLICATION p_whole FOR TABLES IN SCHEMA whole")
        followed, altered, unwatched, left, remade, unlogged = queries = (
            Query(before, tables="item"),
            Query(before, tables="item, other"),
            Query(before, tables="item", onUnloggedChange="ignore"),
            Query(before, tables="item"),
            Query(before, tables="item", publication="p_all"),
            Query(before, tables="whole.narrow", publication="p_whole"),
        )
        for query in queries:
            query.settle()
        followed.sql("UPDATE item SET name = 'before' WHERE id = 1")
        stop_autovacuum(old)
        for query in queries:
            query.until(lambda query=query: caught_up(query))  # type: ignore[misc]
            query.stop()
        system = followed.offsets[-1]["system"]

        upgrade(old, new)
        for query in queries:
            query.url = query.options["url"] = new.database_url("items")
        followed.sql("UPDATE item SET name = 'after' WHERE id = 2", "DROP TABLE other", TABLES[1])
        followed.sql(f"ALTER PUBLICATION {altered.slot} ADD TABLE other")
        followed.sql(f"ALTER PUBLICATION {left.slot} DROP TABLE item", "DROP PUBLICATION p_all")
        followed.sql("INSERT INTO item VALUES (10, 'hidden')")
        followed.sql(
            f"ALTER PUBLICATION {left.slot} ADD TABLE item", "CREATE PUBLICATION p_all FOR ALL TABLES"
        )
        # Without a TOAST table, and not published by its name.
        followed.sql("ALTER TABLE whole.narrow SET UNLOGGED", "INSERT INTO whole.narrow VALUES (1)")
        followed.sql("ALTER TABLE whole.narrow SET LOGGED")
        for wrong in ({}, {"upgradedFrom": "1"}):
            followed.restart(**wrong)
            with pytest.raises(HeadraceError, match="another database system") as caught:
                followed.until(lambda: False)
            assert caught.value.kind is Kind.CONTINUITY
        reached, rows = followed.offsets[-1], len(followed.rows)
        followed.restart(upgradedFrom=system)
        followed.until(lambda: "hidden" in names(followed))
        assert [row["name"] for row in followed.rows[rows:]] == ["after", "hidden"], "nothing comes twice"
        # A process that dies after the step to the new system repeats it.
        step = followed.offsets[followed.offsets.index(reached) + 1]
        followed.restart()
        assert followed.batch(reached, step) == []
        followed.sql("DELETE FROM item WHERE id = 2")
        followed.take(1)

        for query, why in (
            (altered, "the table other has another oid"),
            (unwatched, "no catalog to compare"),
            (left, "the table item, a type of its columns or its publication was altered after the upgrade"),
            (remade, "the publication 'p_all' was altered, or made, after the upgrade"),
            (unlogged, "the table whole.narrow was rewritten, and may have been unlogged"),
        ):
            query.restart(upgradedFrom=system)
            with pytest.raises(HeadraceError, match=why):
                query.until(lambda: False)
        for query in queries:
            query.close()
