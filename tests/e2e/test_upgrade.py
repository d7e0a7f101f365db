"""A real pg_upgrade: the run and the mirror go on with the new server, and with no other one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness import Headrace, Shop
from headrace.config.mirror import Format
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from support.lake import FORMATS, Mirrored
from support.upgrading import end_of_log, is_confirmed, stop_autovacuum, two_servers, upgrade


@pytest.fixture
def servers() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    with two_servers() as servers:
        yield servers


def adopted(pipeline: Headrace) -> str:
    """What `headrace adopt --upgraded` prints."""
    done = pipeline.run_command("adopt", "--upgraded", "--yes")
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_run_goes_on_after_pg_upgrade_and_refuses_other_servers(
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres], opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    old, new = servers
    before = old.create_database("shop")
    shop = Shop(before, 30)
    pipeline = Headrace(tmp_path, shop, opensearch.url, "upgraded")
    try:
        pipeline.start()
        pipeline.wait_ready()
        shop.run("UPDATE users SET name = name || '?'")
        pipeline.converges()
        current = pipeline.served("users")
        stop_autovacuum(old)
        assert "is applied" in pipeline.run_command("wait").stderr
        pipeline.terminate()

        upgrade(old, new)
        shop.url = new.database_url("shop")
        pipeline.config.write_text(pipeline.config.read_text().replace(before, shop.url))
        shop.run("UPDATE users SET name = name || '!'", "DELETE FROM users WHERE id = 3")

        pipeline.start()
        assert pipeline.wait_end(120) == 1
        assert "another system" in pipeline.last_output()
        pipeline.close()
        assert adopted(pipeline).endswith("`headrace run` goes on from there\n")
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        shop.run("UPDATE users SET name = name || '+'")
        pipeline.converges()
        assert pipeline.served("users") == current, "it was built again"
        pipeline.terminate()
        assert "there is nothing to adopt" in adopted(pipeline)
    finally:
        pipeline.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_mirror_goes_on_after_pg_upgrade_and_reads_no_table_again(
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres], tmp_path: Path, kind: Format
) -> None:
    old, new = servers
    before = old.create_database("lake")
    mirror = Mirrored(tmp_path, before, "upgraded", kind=kind)
    adopt = ("adopt", "--upgraded", "--mirror", "--yes", "--config", str(mirror.config))
    mirror.run(
        "CREATE TABLE plain (id int PRIMARY KEY, name text)",
        "CREATE TABLE parted (id int, name text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "INSERT INTO plain SELECT i, 'n' || i FROM generate_series(1, 50) AS i",
        "INSERT INTO parted SELECT * FROM plain",
    )
    try:
        mirror.start()
        mirror.run("UPDATE plain SET name = name || '?'")
        mirror.converges("plain", "parted")
        stop_autovacuum(old)
        mirror.run("DELETE FROM parted WHERE id < 5")
        assert until(lambda: is_confirmed(before, "upgraded", end_of_log(before)), 60)
        mirror.terminate()

        upgrade(old, new)
        mirror.url = new.database_url("lake")
        mirror.config.write_text(mirror.config.read_text().replace(before, mirror.url))
        mirror.run(
            "UPDATE plain SET name = name || '!' WHERE id < 9", "INSERT INTO parted VALUES (60, 'new')"
        )
        mirror.start()
        assert mirror.wait_end(120) == 1
        assert "another database system" in mirror.last_output()
        mirror.close()
        done = mirror.run_command(*adopt)
        assert done.stderr.endswith("`headrace mirror` goes on from there\n"), done.stderr

        mirror.start()
        mirror.converges("plain", "parted")
        mirror.run("ALTER TABLE plain ADD more int DEFAULT 7", "UPDATE parted SET name = 'x' WHERE id = 60")
        mirror.converges("plain", "parted")
        assert mirror.last_output().count("loading") == len(("plain", "parted")), "once, before the upgrade"
        mirror.terminate()
        assert "there is nothing to adopt" in mirror.run_command(*adopt).stderr
    finally:
        mirror.close()
