"""Is the shop the same wherever it is created, and whole?"""

from __future__ import annotations

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import TABLES, create_shop
from support.shop_changes import CHANGES
from support.shop_workload import Workload

_FINGERPRINT = "SELECT count(*), md5(string_agg(one::text, E'\\n' ORDER BY id)) FROM public.{} AS one"


def _fingerprints(url: str) -> dict[str, tuple[int, str]]:
    with connect(url) as connection:
        execute(connection, "SET TimeZone = 'UTC'")
        found = {table: execute(connection, _FINGERPRINT.format(table))[0] for table in TABLES}
    return {table: (count, text) for table, (count, text) in found.items()}


def test_the_same_arguments_give_the_same_rows(postgres: EmbeddedPostgres) -> None:
    urls = [postgres.create_database(name) for name in ("same_1", "same_2", "other")]
    create_shop(urls[0], users=40)
    create_shop(urls[1], users=40)
    create_shop(urls[2], users=40, seed=2)
    first, second, other = map(_fingerprints, urls)
    assert first == second
    assert all(first[table][1] != other[table][1] for table in TABLES)
    for name in ("same_1", "same_2", "other"):
        postgres.drop_database(name)


def test_it_scales_as_promised(database: str) -> None:
    create_shop(database, users=1100)
    counts = {table: count for table, (count, _) in _fingerprints(database).items()}
    assert counts["users"] == 1100
    assert counts["orders"] == 5 * 1100
    assert counts["order_items"] == 3 * 5 * 1100
    assert counts["products"] == 220
    assert min(counts.values()) > 30


def test_every_foreign_key_has_an_index_that_starts_with_it(database: str) -> None:
    """Without them a document costs a scan of its child tables."""
    create_shop(database, users=5)
    with connect(database) as connection:
        bare = execute(
            connection,
            "SELECT conrelid::regclass::text, conkey FROM pg_constraint WHERE contype = 'f' AND "
            "NOT EXISTS (SELECT FROM pg_index WHERE indrelid = conrelid AND indkey[0] = conkey[1])",
        )
        [(keys,)] = execute(connection, "SELECT count(*) FROM pg_constraint WHERE contype = 'f'")
    assert bare == []
    assert keys == 10


def test_a_workload_makes_every_kind_of_change_and_repeats_itself(postgres: EmbeddedPostgres) -> None:
    done = []
    for name in ("work_1", "work_2"):
        url = postgres.create_database(name)
        create_shop(url, users=30)
        with Workload(url, seed=3) as workload:
            for _ in range(400):
                workload.step()
            done.append((workload.done, _without_clocks(url)))
        postgres.drop_database(name)
    assert done[0] == done[1]
    assert all(done[0][0][change] for change in (*CHANGES, "commit", "rollback"))


def _without_clocks(url: str) -> object:
    with connect(url) as connection:
        return execute(
            connection,
            "SELECT (SELECT array_agg(id ORDER BY id) FROM public.orders), "
            "(SELECT array_agg((product_id, tag_id) ORDER BY id) FROM public.product_tags), "
            "(SELECT array_agg(name ORDER BY id) FROM public.products)",
        )
