"""Open connections, and turn their failures into errors with a remedy.

`address` parses the connection string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.postgres.address import libpq_keywords, parse_address, setting_option
from headrace.postgres.answer_timeout import AnswerTimeout, WatchedConnection
from headrace.postgres.password import Password, hide_passwords, run_password_command

Connection = psycopg.Connection[tuple[Any, ...]]

ISOLATION, READ_COMMITTED = "default_transaction_isolation", "read committed"
"""On a standby a session whose transactions are serializable can read nothing."""

KEEPALIVES = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}
"""Settings of the server: it ends an idle session of a host that vanished, and its locks, within 15 s.

The server's defaults take two hours. On a Unix socket the settings have no effect. `tcp_user_timeout` is not
among them: it would also end the session of a reader that pauses while the server has more to send.
"""


def with_defaults(url: str, **parameters: str) -> str:
    """Return `url` as libpq's keyword string, our defaults below it and `parameters` above it.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable; the text never shows it.
    """
    return libpq_keywords(parse_address(url), **parameters)


def place(url: str) -> str:
    """Return where `url` leads, for messages: `HOST:PORT/DATABASE`, without user and password."""
    return parse_address(url).place


def connect(
    url: str,
    *,
    application_name: str = "headrace",
    autocommit: bool = True,
    password: Password | None = None,
) -> Connection:
    """Open a connection to the server of `url`; refuse a connection pooler.

    Args:
        url: libpq's URL or keywords, or a JDBC URL.
        application_name: the name where `url` has none.
        autocommit: whether each statement is a transaction of its own.
        password: returns the password, in the place of one in `url`.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION, CONFIG, PASSWORD_COMMAND; POOLER where a connection pooler
            answers.
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
    """Connect as `connect` does, with libpq's `parameters` besides, and without the check for a pooler.

    Raises:
        HeadraceError: as `connect`, but POOLER only where the pooler itself refuses.
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
    """Return libpq's keyword string to connect with now; it holds the password, so it is never printed.

    Raises:
        HeadraceError: CONFIG, PASSWORD_COMMAND.
    """
    address = parse_address(url)
    keywords = {
        "application_name": address.parameters.get("application_name", application_name),
        **parameters,
    }
    if password is not None:
        keywords["password"] = password()
    elif address.command:
        keywords["password"] = run_password_command(address.command)
    return libpq_keywords(address, **keywords)


def keepalives(url: str) -> dict[str, str]:
    """Return the settings of `KEEPALIVES` that the options in `url` do not set."""
    options = parse_address(url).parameters.get("options", "")
    return {name: value for name, value in KEEPALIVES.items() if name not in options}


def conninfo_for_adbc(url: str, application_name: str) -> str:
    """Return the keyword string for ADBC, which queries the server before any setting can be made.

    Raises:
        HeadraceError: CONFIG, PASSWORD_COMMAND.
    """
    options = setting_option(parse_address(url), ISOLATION, READ_COMMITTED)
    return conninfo_of(url, application_name, None, options)


def check_direct(connection: Connection, pid: int, url: str) -> None:
    """Refuse a pooler: it reports another process number than the server's own.

    Raises:
        HeadraceError: POOLER.
    """
    if isinstance(connection, WatchedConnection):
        connection.is_served_by(pid)
    address = parse_address(url)
    if pid != connection.info.backend_pid and not address.session_proxy:
        raise pooler_error(address.place, "the server process that answers is not the one that was announced")


def pooler_error(place: str, reason: str) -> HeadraceError:
    """Return the error for a connection pooler in the place of a server."""
    return HeadraceError(
        Kind.POOLER,
        f"a connection pooler answers at {place}: {reason}",
        "Give the address of the server itself (often port 5432). Only where a proxy keeps one session for "
        "each connection and carries replication too: add session_proxy=true to the connection URL.",
    )


def connection_error(error: psycopg.Error, url: str) -> HeadraceError:
    """Return the error of a failed attempt to connect, without passwords."""
    place = parse_address(url).place
    text = hide_passwords(" ".join(str(error).split()))
    if any(word in text.lower() for word in ("unsupported startup parameter", "pgbouncer", "odyssey")):
        return pooler_error(place, text)
    for kind, words, cause, remedy in _REFUSALS:
        if all(word in text.lower() for word in words):
            return HeadraceError(kind, cause.format(place=place, text=text), remedy)
    return HeadraceError(
        Kind.CONNECTION,
        f"no connection to the database at {place}: {_reason(text)}",
        "Check host and port and that the server runs.",
    )


def _reason(text: str) -> str:
    """Remove from libpq's text what our message says too: the address and the advice."""
    text = text.replace(_ADVICE, "").removeprefix("connection failed: ")
    return text if len(_PLACE.findall(text)) > 1 else _PLACE.sub("", text).rstrip(".? ")


_ADVICE = " Is the server running on that host and accepting TCP/IP connections?"
_PLACE = re.compile(r'connection to server at "[^"]*"(?: \([^)]*\))?, port \d+ failed: ')


_USER = "the database at {place} refused the user or the password"
_ACCESS = "the database at {place} does not let this user in: {text}"
_NAME = "there is no such database at {place}"
_TLS = "no TLS connection to the database at {place}: {text}"
_URL = "the connection URL for {place} is wrong: {text}"
_CORRECT = "Correct the connection URL, or set DATABASE_URL."
_UNTRUSTED = (
    "Give the CA that has signed the server's certificate in sslrootcert; renew the certificate if it has "
    "expired (libpq does not say), or correct this machine's clock."
)
_CORRECT_TLS = "Correct sslmode, sslrootcert, sslcert, sslkey or sslcrl in the connection URL."
_AUTH_METHOD = "the database at {place} wants the password in a way that is not allowed: {text}"
_SCRAM = (
    "On the server: password_encryption = 'scram-sha-256', ALTER ROLE … PASSWORD '…', and scram-sha-256 in "
    "pg_hba.conf"
)

# No SQLSTATE comes with a refused connection: only the text shows which errors are not retryable. The first
# row whose words all occur decides. Where the server's messages are in another language, it is retried.
_REFUSALS: tuple[tuple[Kind, tuple[str, ...], str, str], ...] = (
    (
        Kind.AUTHENTICATION,
        ("method requirement", "cleartext"),
        _AUTH_METHOD,
        f"{_SCRAM}; or connect with sslmode=verify-full and sslrootcert: then it may be in the clear.",
    ),
    (
        Kind.AUTHENTICATION,
        ("method requirement", "hashed password"),
        _AUTH_METHOD,
        f"{_SCRAM}; or allow MD5 with require_auth=md5 in the connection URL.",
    ),
    (
        Kind.AUTHENTICATION,
        ("method requirement",),
        _AUTH_METHOD,
        "Correct require_auth in the connection URL.",
    ),
    (
        Kind.AUTHENTICATION,
        ("channel binding",),
        _ACCESS,
        f"channel_binding=require needs TLS and a SCRAM password. {_SCRAM}; or channel_binding=prefer.",
    ),
    (Kind.AUTHENTICATION, ("valid client certificate",), _ACCESS, "Set sslcert and sslkey in the URL."),
    (
        Kind.AUTHENTICATION,
        ("certificate authentication failed",),
        _ACCESS,
        "Set sslcert and sslkey for this user.",
    ),
    (Kind.AUTHENTICATION, ("alert unknown ca",), _ACCESS, "The server does not know the CA of sslcert."),
    (Kind.AUTHENTICATION, ("password authentication failed",), _USER, _CORRECT),
    (Kind.AUTHENTICATION, ("no password supplied",), _USER, _CORRECT),
    (Kind.AUTHENTICATION, ("pg_hba.conf",), _ACCESS, "Add a line to pg_hba.conf, or correct sslmode."),
    (Kind.AUTHENTICATION, ('role "', "does not exist"), _ACCESS, _CORRECT),
    (
        Kind.AUTHENTICATION,
        ('role "', "not permitted to log in"),
        _ACCESS,
        "ALTER ROLE … LOGIN, or another role.",
    ),
    (
        Kind.PRIVILEGE,
        ("permission denied for database",),
        _ACCESS,
        "GRANT CONNECT ON DATABASE … TO the role.",
    ),
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
