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
        followed, altered, unwatched = (
            Query(before, tables="item"),
            Query(before, tables="item, other"),
            Query(before, tables="item", onUnloggedChange="ignore"),
        )
        queries = (followed, altered, unwatched)
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
        for wrong in ({}, {"upgradedFrom": "1"}):
            followed.restart(**wrong)
            with pytest.raises(HeadraceError, match="another database system") as caught:
                followed.until(lambda: False)
            assert caught.value.kind is Kind.CONTINUITY
        reached, rows = followed.offsets[-1], len(followed.rows)
        followed.restart(upgradedFrom=system)
        followed.until(lambda: "after" in names(followed))
        assert [row["name"] for row in followed.rows[rows:]] == ["after"], "nothing comes twice"
        # A process that dies behind the step to the new system repeats it.
        step = followed.offsets[followed.offsets.index(reached) + 1]
        followed.restart()
        assert followed.batch(reached, step) == []
        followed.sql("DELETE FROM item WHERE id = 2")
        followed.take(1)

        for query, why in (
            (altered, "the table other has another oid"),
            (unwatched, "no catalog to compare"),
        ):
            query.restart(upgradedFrom=system)
            with pytest.raises(HeadraceError, match=why):
                query.until(lambda: False)
        for query in queries:
            query.close()
