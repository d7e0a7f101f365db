"""Open connections, and run statements on them.

`address` parses the connection string, `server_errors` turns failures into errors with a remedy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus

from headrace.errors import HeadraceError, Kind
from headrace.postgres.address import libpq_keywords, parse_address
from headrace.postgres.answer_timeout import AnswerTimeout, WatchedConnection
from headrace.postgres.cloud_tokens import cloud_token
from headrace.postgres.logins import LOGINS
from headrace.postgres.password import cloud_of, run_password_command
from headrace.postgres.quoting import literal
from headrace.postgres.server_errors import (
    connection_error,
    database_error,
    not_primary,
    pooler_error,
    read_only_role,
)

Connection = psycopg.Connection[tuple[Any, ...]]

ISOLATION, READ_COMMITTED = "default_transaction_isolation", "read committed"
"""On a standby a session whose transactions are serializable can read nothing."""

OLDEST = 140000
"""PostgreSQL 14, as `server_version_num` counts."""
_ONE_NUMBER = 100000  # since 10 a major version is one number

KEEPALIVES = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "2"}
"""Settings of the server: it ends an idle session of a host that vanished, and its locks, within 15 s.

The server's defaults take two hours. On a Unix socket the settings have no effect. `tcp_user_timeout` is not
among them: it would also end the session of a reader that pauses while the server has more to send.
"""

PINNED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "search_path": "pg_catalog",
    "row_security": "off",
    "default_transaction_read_only": "on",
    ISOLATION: READ_COMMITTED,
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
    "xmloption": "content",
    "jit": "off",
    "synchronous_commit": "local",
}
"""The settings of every reading session (decision 0013).

`jit` is off because compiling a document's expression takes seconds.
"""

_TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
)
"""Limits that a role or a database may set for people's sessions, and that no session of ours has."""
# PostgreSQL 17 has it; SET of an unknown setting is an error before.
_TRANSACTION_TIMEOUT, _SINCE = "transaction_timeout", 170000

_READ_ONLY = "25006"
_WHY_READ_ONLY = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool"

_WHO = "SELECT pg_backend_pid(), extract(epoch FROM pg_postmaster_start_time())::text"
"""Selects the server process that answers, and the server's mark."""


class Closeable(ABC):
    """What is closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Close it; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def with_defaults(url: str, **parameters: str) -> str:
    """Return `url` as libpq's keyword string, our defaults below it and `parameters` above it.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable; the text never shows it.
    """
    return libpq_keywords(parse_address(url), **parameters)


def place(url: str) -> str:
    """Return where `url` leads, for messages: `HOST:PORT/DATABASE`, without user and password."""
    return parse_address(url).place


def connect(url: str, *, application_name: str = "headrace", autocommit: bool = True) -> Connection:
    """Open a connection to the server of `url`; refuse a connection pooler.

    Args:
        url: libpq's URL or keywords, or a JDBC URL.
        application_name: the name where `url` has none.
        autocommit: whether each statement is a transaction of its own.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, CONFIG, PASSWORD_COMMAND; POOLER where a connection pooler
            answers; SERVER_VERSION below 14.
    """
    connection = open_connection(url, application_name)
    connection.autocommit = autocommit
    return connection


def open_connection(
    url: str,
    application_name: str,
    *,
    parameters: Mapping[str, str] = MappingProxyType({}),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> WatchedConnection:
    """Connect as `connect` does; every session of psycopg begins here.

    Args:
        parameters: libpq's parameters besides.
        settings: the session's settings, pinned before the first statement.

    Raises:
        HeadraceError: as `connect`; DATABASE where the server refuses a setting.
    """
    conninfo, replication = conninfo_of(url, application_name, parameters), parameters.get("replication", "")
    try:
        connection = WatchedConnection.connect(conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise LOGINS.judge(url, replication, connection_error(error, url)) from error
    LOGINS.note_success(url, replication)
    try:
        _begin_session(connection, url)
        # After the pooler was refused: a pooler would leave them to the next client of its session.
        if settings:
            query(connection, pin_statement(settings))
    except HeadraceError:
        connection.close()
        raise
    return connection


def check_version(version: int) -> None:
    """Refuse a server that is too old.

    Raises:
        HeadraceError: SERVER_VERSION.
    """
    if version < OLDEST:
        named = (
            f"{version // 10000}" if version >= _ONE_NUMBER else f"{version // 10000}.{version // 100 % 100}"
        )
        raise HeadraceError(
            Kind.SERVER_VERSION,
            f"the server is PostgreSQL {named}; Headrace reads 14 and later",
            "Upgrade the server.",
        )


def _begin_session(connection: WatchedConnection, url: str) -> None:
    """Make the first statements of a session; refuse a pooler.

    A pooler reports another process number than the server's own.
    """
    # Before the first statement: an older server lacks some of the settings.
    check_version(connection.info.server_version)
    address = parse_address(url)
    timeouts = [*_TIMEOUTS, *([_TRANSACTION_TIMEOUT] if connection.info.server_version >= _SINCE else [])]
    # What a role or a database sets as a default for people must not change what is read.
    first = {ISOLATION: READ_COMMITTED, **keepalives(url), **dict.fromkeys(timeouts, "0")}
    statement = ";".join(f"SET {name} = '{value}'" for name, value in first.items())
    try:
        connection.execute(statement.encode())  # without a SELECT it needs no snapshot
        [(pid, connection.server_mark)] = execute(connection, _WHO)
    except psycopg.Error as error:
        raise connection_error(error, url) from error
    # The check connects again: a password from a command or a cloud may have expired meanwhile.
    connection.silence = AnswerTimeout(lambda: conninfo_of(url, "headrace look"), pid)
    # Session state (locks, snapshots, settings) is lost behind a pooler without any error.
    if pid != connection.info.backend_pid and not address.session_proxy:
        raise pooler_error(address.place, "the server process that answers is not the one that was announced")


def conninfo_of(url: str, application_name: str, parameters: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return libpq's keyword string to connect with now; it holds the password, so it is never printed.

    Raises:
        HeadraceError: CONFIG, PASSWORD_COMMAND, DEPENDENCY.
    """
    address = parse_address(url)
    keywords = {
        "application_name": address.parameters.get("application_name", application_name),
        **parameters,
    }
    # A token lives for 15 minutes to an hour: each connection gets its own.
    if (cloud := cloud_of(address.command)) is not None:
        keywords["password"] = cloud_token(cloud, address)
    elif address.command:
        keywords["password"] = run_password_command(address.command)
    return libpq_keywords(address, **keywords)


def keepalives(url: str) -> dict[str, str]:
    """Return the settings of `KEEPALIVES` that the options in `url` do not set."""
    options = parse_address(url).parameters.get("options", "")
    return {name: value for name, value in KEEPALIVES.items() if name not in options}


def query(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one statement with `$1`-style parameters and return its rows (none for a command).

    Raises:
        HeadraceError: CONNECTION where the connection was lost, DATABASE or PRIVILEGE for what the server
            refuses.
    """
    try:
        return execute(connection, sql, parameters)
    except psycopg.Error as error:
        raise refused_statement(connection, error) from error


def refused_statement(connection: Connection, error: psycopg.Error) -> HeadraceError:
    """Return the error of a statement; where a write was refused, with the reason.

    Raises:
        HeadraceError: CONNECTION, where it is lost meanwhile.
    """
    # Inside a failed transaction the server answers no question.
    if error.sqlstate != _READ_ONLY or connection.info.transaction_status is not TransactionStatus.IDLE:
        return database_error(error, connection.info.dsn)
    [(in_recovery, by_default)] = query(connection, _WHY_READ_ONLY)
    where, text = place(connection.info.dsn), str(error.diag.message_primary)
    # A server that is read-only for another reason is one of a cluster whose writer is another one.
    return read_only_role(where, text) if by_default and not in_recovery else not_primary(where, text)


def execute(
    connection: Connection, sql: str, parameters: Sequence[object] = (), *, prepare: bool | None = None
) -> list[tuple[Any, ...]]:
    """As `query`, but raise psycopg's errors; `prepare` as of psycopg's `execute`."""
    cursor = connection.execute(sql.encode(), parameters or None, prepare=prepare)
    return cursor.fetchall() if cursor.description is not None else []


def pin_statement(settings: Mapping[str, str]) -> str:
    """Return the statement that pins `settings`."""
    chosen = ", ".join(
        f"set_config({literal(name)}, {literal(value)}, false)" for name, value in settings.items()
    )
    return f"SELECT {chosen}"
