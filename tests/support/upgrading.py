"""A real pg_upgrade of two servers of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute
from support.servers import installation, short_lived_server

_MOVES_SLOTS_SINCE = 17


@contextmanager
def two_servers() -> Iterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """A server that is upgraded, and an empty one; the test is skipped where pg_upgrade moves no slots."""
    settings = {"autovacuum_naptime": "1"}
    with short_lived_server(settings=settings, binaries=installation()) as old:
        with connect(old.url) as connection:
            [(version,)] = execute(connection, "SELECT current_setting('server_version_num')::int / 10000")
        if version < _MOVES_SLOTS_SINCE:
            pytest.skip("pg_upgrade of this server does not move logical slots")
        with short_lived_server(binaries=installation()) as new:
            yield old, new


def upgrade(old: EmbeddedPostgres, new: EmbeddedPostgres) -> None:
    """Stop both, move everything of the old one to the new one, as an operator does, and start that."""
    old.stop()
    new.stop()
    for server in (old, new):
        access = server._site.data / "pg_hba.conf"
        access.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    account, folder = new._site.account, new._site.folder / "upgrade"
    folder.mkdir()
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    done = subprocess.run(
        [
            new._site.binaries / "pg_upgrade",
            *("--old-bindir", old._site.binaries, "--new-bindir", new._site.binaries),
            *("--old-datadir", old._site.data, "--new-datadir", new._site.data),
            *("--username", "postgres", "--socketdir", folder, "--no-sync"),
            *("--old-options", "-c wal_level=logical", "--new-options", "-c wal_level=logical"),
        ],
        cwd=folder,
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    new._password = old._password
    new.start()


def stop_autovacuum(server: EmbeddedPostgres) -> None:
    """Stop what commits by itself: pg_upgrade refuses a slot that has not read a commit."""
    with connect(server.url) as connection:
        execute(connection, "ALTER SYSTEM SET autovacuum = off")
        execute(connection, "SELECT pg_reload_conf()")
        at_work = "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
        assert until(lambda: not [*execute(connection, at_work)], 30)


def is_confirmed(url: str, slot: str, position: str) -> bool:
    """Whether a slot is confirmed up to a position of the log."""
    with connect(url) as connection:
        asked = "SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1"
        return [*execute(connection, asked, (slot, position))] == [(True,)]


def end_of_log(url: str) -> str:
    """The end of what was committed."""
    with connect(url) as connection:
        [(position,)] = execute(connection, "SELECT pg_current_wal_insert_lsn()::text")
    return str(position)
