"""The embedded PostgreSQL: a real server that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import _copy, wheel_binaries
from headrace.embedded.processes import living, port_is_free, until
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute

_CHILD = """
import sys
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import wheel_binaries
from headrace.embedded.processes import descendants
server = EmbeddedPostgres(durable=False).__enter__()
pid = server._process.pid
print(server._site.folder, pid, *descendants(pid), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(durable=False) as own:
        yield own


def test_it_decodes_logically_and_knows_utf8(postgres: EmbeddedPostgres) -> None:
    with connect(postgres.url) as connection:
        [row] = execute(
            connection,
            "SELECT current_setting('wal_level'), current_setting('server_encoding'), upper('ü'), "
            "current_setting('max_replication_slots')",
        )
    assert row == ("logical", "UTF8", "Ü", "10")


def test_each_database_is_fresh_whatever_its_name(database: str, postgres: EmbeddedPostgres) -> None:
    url = postgres.create_database('a "b" / ü%')
    for each in (database, url):
        with connect(each) as connection:
            execute(connection, "CREATE TABLE t (a int)")
    postgres.drop_database('a "b" / ü%')


def test_the_programs_that_are_copied_for_another_user_can_be_run_whatever_the_umask(tmp_path: Path) -> None:
    wheel = tmp_path / "package/pginstall"
    for name, mode in {"bin/initdb": 0o711, "lib/libpq.so": 0o600, "share/base/postgres.bki": 0o600}.items():
        (wheel / name).parent.mkdir(parents=True, exist_ok=True)
        (wheel / name).touch(mode)
    before = os.umask(0o077)
    try:
        copied = _copy(wheel / "bin", tmp_path / "programs").parent
    finally:
        os.umask(before)
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in copied.rglob("*")}
    assert modes == {
        **dict.fromkeys(("bin", "lib", "share", "base", "initdb"), 0o755),
        **dict.fromkeys(("libpq.so", "postgres.bki"), 0o644),
    }


def test_nobody_enters_without_the_password(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(HeadraceError) as refused:
        connect(postgres.url.replace(postgres._password, "wrong"))
    assert refused.value.kind is Kind.AUTHENTICATION


@pytest.mark.parametrize("end", [EmbeddedPostgres.kill, EmbeddedPostgres.stop])
def test_data_and_port_outlive_a_restart(server: EmbeddedPostgres, end: object) -> None:
    name = f"kept_{getattr(end, '__name__', '')}"
    url = server.create_database(name)
    with connect(url) as connection:
        execute(connection, "CREATE TABLE t AS SELECT 42 AS a")
        assert callable(end)
        end(server)
        assert not server.running
        assert port_is_free(server.port)
    server.start()
    with connect(url) as connection:
        assert execute(connection, "TABLE t") == [(42,)]


@pytest.mark.long
def test_a_taken_port_is_said(server: EmbeddedPostgres) -> None:
    with EmbeddedPostgres(durable=False) as other:
        other.stop()
        own, other._port = other._port, server.port
        with pytest.raises(HeadraceError) as taken:
            other.start()
        assert taken.value.kind is Kind.PORT_IN_USE
        other._port = own
        other.start()


def test_programs_that_the_servers_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    hidden = tmp_path / "home"
    hidden.mkdir(mode=0o700)
    package = wheel_binaries().parents[1]
    for part in package.parent.glob(f"{package.name}*"):
        (hidden / part.name).symlink_to(part)
    binaries = hidden / package.name / "pginstall" / "bin"
    with EmbeddedPostgres(durable=False, binaries=binaries) as other, connect(other.url) as connection:
        assert execute(connection, "SELECT 1") == [(1,)]
        assert (other._site.binaries != binaries) == (os.geteuid() == 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_its_starter_is_its_own(number: signal.Signals) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    folder, *pids = starter.stdout.readline().split()
    assert len(pids) > 1
    starter.send_signal(number)
    starter.communicate()
    assert until(lambda: not living(int(pid) for pid in pids), 10)
    assert until(lambda: not Path(folder).exists(), 10)


def test_a_program_that_ends_leaves_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], input="", capture_output=True, text=True, check=True
    )
    folder, *pids = done.stdout.split()
    assert not living(int(pid) for pid in pids)
    assert not Path(folder).exists()
