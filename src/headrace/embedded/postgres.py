"""Run a real PostgreSQL for the demo and for tests, without an installation."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from headrace.embedded.postgres_files import initialise, make_site, server_account, wheel_binaries
from headrace.embedded.processes import GuardedProcess
from headrace.embedded.server import EmbeddedServer
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier

StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "postgres"
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "10",
    "max_wal_senders": "10",
    "max_connections": "100",
}
"""The parameters of every embedded server; the caller's settings override them."""

_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_SOCKET_PATH = 80
_STATUS_LINE = 7
_STOPPED_WITHIN = 60.0
_LINES_OF_A_START = 6


class EmbeddedPostgres(EmbeddedServer):
    """A PostgreSQL server on a free loopback port, as a context manager.

    Args:
        durable: False turns fsync off: faster, but a crash of the machine loses data (tests only). A killed
            server loses nothing either way.
        settings: configuration parameters that override the defaults (`SETTINGS`).
        binaries: the `bin` folder of another installation; None: that of the wheel.

    Raises:
        HeadraceError: DEPENDENCY, DISK, PORT_IN_USE or DATABASE, from entering the context and `start`.
    """

    def __init__(
        self, *, durable: bool = True, settings: Mapping[str, str] | None = None, binaries: Path | None = None
    ) -> None:
        self._settings = {**SETTINGS, **({} if durable else _NOT_DURABLE), **(settings or {})}
        self._password = secrets.token_urlsafe(18)
        self._site = make_site(binaries or wheel_binaries(), server_account())
        super().__init__(self._site.folder)

    @property
    def url(self) -> str:
        """The superuser's connection URL of the database "postgres", with its password."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        """Return the superuser's connection URL of a database."""
        secret = quote(self._password, safe="")
        return f"postgresql://{SUPERUSER}:{secret}@127.0.0.1:{self._port}/{quote(name, safe='')}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL.

        Raises:
            HeadraceError: CONNECTION, where the server is stopped.
        """
        with connect(self.url) as connection:
            execute(connection, f"CREATE DATABASE {identifier(name)}")
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end its sessions; nothing happens where there is none."""
        with connect(self.url) as connection:
            execute(connection, f"DROP DATABASE IF EXISTS {identifier(name)} WITH (FORCE)")

    def stop(self, mode: StopMode = "fast") -> None:
        """Shut the server down as `pg_ctl stop -m` does; kill it if it does not end in time."""
        self._end(_SIGNALS[mode], _STOPPED_WITHIN)

    def _prepare(self) -> None:
        initialise(self._site, SUPERUSER, self._password)

    def _spawn(self) -> GuardedProcess:
        site = self._site
        # A path of a Unix socket has 107 bytes at most.
        sockets = site.data if len(os.fsencode(site.data)) < _SOCKET_PATH else ""
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(sockets),
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return GuardedProcess(
            [str(site.binaries / "postgres"), "-D", str(site.data), *words],
            log=self._log,
            account=site.account,
            last_signal=signal.SIGQUIT,
            folder=site.folder,
        )

    def _ready(self) -> bool:
        """Return whether this server's lock file reports that it is ready."""
        try:
            lines = (self._site.data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        # The file of a server that was killed is still there.
        own = self._process is not None and lines[0] == str(self._process.pid)
        return own and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def _failure(self, output: str) -> HeadraceError:
        # The server's last words only say that it ends; why stands before, and not always as an error.
        why = next((line for line in output.splitlines() if "FATAL" in line or "PANIC" in line), "")
        cause = why or " / ".join(output.splitlines()[-_LINES_OF_A_START:]) or "no output"
        return HeadraceError(Kind.DATABASE, f"the embedded PostgreSQL did not start: {cause}")
