"""A real pg_upgrade: the run goes on with the new server, and with no other one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute
from support.servers import installation, short_lived_server

_MOVES_SLOTS_SINCE = 17


@pytest.fixture
def servers() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    with ExitStack() as stack:
        yield (
            stack.enter_context(
                short_lived_server(settings={"autovacuum_naptime": "1"}, binaries=installation())
            ),
            stack.enter_context(short_lived_server(binaries=installation())),
        )


def pg_upgrade(old: EmbeddedPostgres, new: EmbeddedPostgres) -> None:
    """Move everything of a stopped server to another stopped one, as an operator does."""
    for server in (old, new):
        access = server._site.data / "pg_hba.conf"
        access.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    account, folder = new._site.account, new._site.folder / "upgrade"
    folder.mkdir()
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    done = subprocess.run(
        [
            new._site.binaries / "pg_upgrade",
            *("--old-bindir", old._site.binaries, "--new-bindir", new._site.binaries),
            *("--old-datadir", old._site.data, "--new-datadir", new._site.data),
            *("--username", "postgres", "--socketdir", folder, "--no-sync"),
            *("--old-options", "-c wal_level=logical", "--new-options", "-c wal_level=logical"),
        ],
        cwd=folder,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    new._password = old._password


def stop_autovacuum(server: EmbeddedPostgres) -> None:
    """Stop what commits by itself: pg_upgrade refuses a slot behind a commit."""
    with connect(server.url) as connection:
        execute(connection, "ALTER SYSTEM SET autovacuum = off")
        execute(connection, "SELECT pg_reload_conf()")
        at_work = "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
        assert until(lambda: not [*execute(connection, at_work)], 30)


def adopted(pipeline: Headrace) -> str:
    """What `headrace adopt --upgraded` prints."""
    done = pipeline.run_command("adopt", "--upgraded", "--yes")
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_run_goes_on_after_pg_upgrade_and_refuses_other_servers(
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
) -> None:
    old, new = servers
    before = old.create_database("shop")
    shop = Shop(before, 30)
    with connect(old.url) as connection:
        [(version,)] = execute(connection, "SELECT current_setting('server_version_num')::int / 10000")
    if version < _MOVES_SLOTS_SINCE:
        pytest.skip("pg_upgrade of this server does not move logical slots")
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

        old.stop()
        new.stop()
        pg_upgrade(old, new)
        new.start()
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
