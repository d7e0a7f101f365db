"""How is a connection opened, and what do its failures mean to the operator?

What the connection string means stands in `address`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.postgres.address import address, complete, options_with
from headrace.postgres.answer_timeout import AnswerTimeout, WatchedConnection
from headrace.postgres.password import Password, ask, hide_passwords

Connection = psycopg.Connection[tuple[Any, ...]]

ISOLATION, READ_COMMITTED = "default_transaction_isolation", "read committed"
"""On a standby nothing at all can be read in a session whose transactions are serializable."""

KEEPALIVES = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}
"""The server's: it ends an idle session of a host that vanished, and with it locks and claims, within 15 s.

Its own defaults take two hours. On a Unix socket they mean nothing. `tcp_user_timeout` is not among them: it
would also end the session of a reader that pauses while the server has more to send.
"""


def with_defaults(url: str, **parameters: str) -> str:
    """`url` as libpq's keyword string with our defaults under it and `parameters` over it.

    Raises:
        HeadraceError: CONFIG, where it is not usable; the text never shows it.
    """
    return complete(address(url), **parameters)


def place(url: str) -> str:
    """Where `url` leads, for messages: `HOST:PORT/DATABASE`, without user and password."""
    return address(url).place


def connect(
    url: str,
    *,
    application_name: str = "headrace",
    autocommit: bool = True,
    password: Password | None = None,
) -> Connection:
    """Open a connection to the database that `url` names, and to no other.

    Args:
        url: libpq's URL or keywords, or a JDBC URL.
        application_name: where `url` names none.
        autocommit: whether each statement is its own transaction.
        password: asked for the password, in the place of one in `url`.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, CONFIG, PASSWORD_COMMAND; POOLER where what answers is not
            the server itself.
    """
    connection = open_connection(url, application_name, password, {})
    try:
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        check_direct(connection, pid, url)
        connection.autocommit = autocommit
    except HeadraceError:
        connection.close()
        raise
    except psycopg.Error as error:
        connection.close()
        raise connection_error(error, url) from error
    return connection


def open_connection(
    url: str, application_name: str, password: Password | None, parameters: Mapping[str, str]
) -> WatchedConnection:
    """Connect as `connect` does, with libpq's `parameters` besides, and without a look at who answers.

    Raises:
        HeadraceError: as `connect`, but POOLER only where it refuses by itself.
    """
    conninfo = conninfo_of(url, application_name, password, parameters)
    try:
        connection = WatchedConnection.connect(conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise connection_error(error, url) from error
    connection.silence = AnswerTimeout(lambda: conninfo_of(url, "headrace look", password))
    settings = {ISOLATION: READ_COMMITTED, **keepalives(url)}
    statement = ";".join(f"SET {name} = '{value}'" for name, value in settings.items())
    try:
        connection.execute(statement.encode())  # without a SELECT it needs no snapshot
    except psycopg.Error as error:
        connection.close()
        raise connection_error(error, url) from error
    return connection


def conninfo_of(
    url: str,
    application_name: str,
    password: Password | None = None,
    parameters: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Libpq's keyword string to connect with now; it holds the password, so it is never printed.

    Raises:
        HeadraceError: CONFIG, PASSWORD_COMMAND.
    """
    found = address(url)
    words = {"application_name": found.parameters.get("application_name", application_name), **parameters}
    if password is not None:
        words["password"] = password()
    elif found.command:
        words["password"] = ask(found.command)
    return complete(found, **words)


def keepalives(url: str) -> dict[str, str]:
    """`KEEPALIVES` that the options in `url` do not set themselves."""
    given = address(url).parameters.get("options", "")
    return {name: value for name, value in KEEPALIVES.items() if name not in given}


def conninfo_for_adbc(url: str, application_name: str) -> str:
    """As `conninfo_of`, for ADBC: it asks the server for its types before a statement of ours can run.

    Raises:
        HeadraceError: CONFIG, PASSWORD_COMMAND.
    """
    options = options_with(address(url), ISOLATION, READ_COMMITTED)
    return conninfo_of(url, application_name, None, options)


def check_direct(connection: Connection, pid: int, url: str) -> None:
    """Refuse a pooler: it gives a client another process number than the server's own.

    Raises:
        HeadraceError: POOLER.
    """
    if isinstance(connection, WatchedConnection):
        connection.is_served_by(pid)
    found = address(url)
    if pid != connection.info.backend_pid and not found.session_proxy:
        raise pooler(found.place, "the server process that answers is not the one that was announced")


def pooler(where: str, why: str) -> HeadraceError:
    """What answers is no PostgreSQL server."""
    return HeadraceError(
        Kind.POOLER,
        f"a connection pooler answers at {where}: {why}",
        "Give the address of the server itself (often port 5432). Only where a proxy keeps one session for "
        "each connection and carries replication too: add session_proxy=true to the connection URL.",
    )


def connection_error(error: psycopg.Error, url: str) -> HeadraceError:
    """What a failed attempt to connect means, without the value of any field that holds a secret."""
    place = address(url).place
    text = hide_passwords(" ".join(str(error).split()))
    if any(word in text.lower() for word in ("unsupported startup parameter", "pgbouncer", "odyssey")):
        return pooler(place, text)
    for kind, words, cause, remedy in _REFUSALS:
        if all(word in text.lower() for word in words):
            return HeadraceError(kind, cause.format(place=place, text=text), remedy)
    return HeadraceError(
        Kind.CONNECTION,
        f"no connection to the database at {place}: {_reason(text)}",
        "Check host and port and that the server runs.",
    )


def _reason(text: str) -> str:
    """What libpq says without what we say too: the address, where there is one, and the advice."""
    text = text.replace(_ADVICE, "").removeprefix("connection failed: ")
    return text if len(_PLACE.findall(text)) > 1 else _PLACE.sub("", text).rstrip(".? ")


_ADVICE = " Is the server running on that host and accepting TCP/IP connections?"
_PLACE = re.compile(r'connection to server at "[^"]*"(?: \([^)]*\))?, port \d+ failed: ')


_USER = "the database at {place} refused the user or the password"
_DOOR = "the database at {place} does not let this user in: {text}"
_NAME = "there is no such database at {place}"
_TLS = "no TLS connection to the database at {place}: {text}"
_URL = "the connection URL for {place} is wrong: {text}"
_CORRECT = "Correct the connection URL, or set DATABASE_URL."
_UNTRUSTED = (
    "Give the CA that has signed the server's certificate in sslrootcert; renew the certificate if it has "
    "expired (libpq does not say), or correct this machine's clock."
)
_CORRECT_TLS = "Correct sslmode, sslrootcert, sslcert, sslkey or sslcrl in the connection URL."
_METHOD = "the database at {place} wants the password in a way that is not allowed: {text}"
_SCRAM = (
    "On the server: password_encryption = 'scram-sha-256', ALTER ROLE … PASSWORD '…', and scram-sha-256 in "
    "pg_hba.conf"
)

# No SQLSTATE comes with a refused connection: only the words tell what waiting does not cure. The first
# row whose words all occur decides; a server that speaks another language is retried.
_REFUSALS: tuple[tuple[Kind, tuple[str, ...], str, str], ...] = (
    (
        Kind.AUTHENTICATION,
        ("method requirement", "cleartext"),
        _METHOD,
        f"{_SCRAM}; or connect with sslmode=verify-full and sslrootcert: then it may be in the clear.",
    ),
    (
        Kind.AUTHENTICATION,
        ("method requirement", "hashed password"),
        _METHOD,
        f"{_SCRAM}; or allow MD5 with require_auth=md5 in the connection URL.",
    ),
    (Kind.AUTHENTICATION, ("method requirement",), _METHOD, "Correct require_auth in the connection URL."),
    (
        Kind.AUTHENTICATION,
        ("channel binding",),
        _DOOR,
        f"channel_binding=require needs TLS and a SCRAM password. {_SCRAM}; or channel_binding=prefer.",
    ),
    (Kind.AUTHENTICATION, ("valid client certificate",), _DOOR, "Set sslcert and sslkey in the URL."),
    (
        Kind.AUTHENTICATION,
        ("certificate authentication failed",),
        _DOOR,
        "Set sslcert and sslkey for this user.",
    ),
    (Kind.AUTHENTICATION, ("alert unknown ca",), _DOOR, "The server does not know the CA of sslcert."),
    (Kind.AUTHENTICATION, ("password authentication failed",), _USER, _CORRECT),
    (Kind.AUTHENTICATION, ("no password supplied",), _USER, _CORRECT),
    (Kind.AUTHENTICATION, ("pg_hba.conf",), _DOOR, "Add a line to pg_hba.conf, or correct sslmode."),
    (Kind.AUTHENTICATION, ('role "', "does not exist"), _DOOR, _CORRECT),
    (
        Kind.AUTHENTICATION,
        ('role "', "not permitted to log in"),
        _DOOR,
        "ALTER ROLE … LOGIN, or another role.",
    ),
    (Kind.PRIVILEGE, ("permission denied for database",), _DOOR, "GRANT CONNECT ON DATABASE … TO the role."),
    (Kind.CONFIG, ('database "', "does not exist"), _NAME, _CORRECT),
    (Kind.CONFIG, ("does not support ssl",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("certificate verify failed",), _TLS, _UNTRUSTED),
    (Kind.CONFIG, ("root certificate",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("server certificate for",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("certificate file",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("private key",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("weak sslmode",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("connection is bad: invalid",), _URL, _CORRECT),
    (Kind.CONFIG, ("bad value for",), _URL, _CORRECT),
)


def execute(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one statement with `$1`-style parameters and return its rows (none for a command)."""
    cursor = connection.execute(sql.encode(), parameters or None)
    return cursor.fetchall() if cursor.description is not None else []
