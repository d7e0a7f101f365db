"""How is a connection opened, and what do its failures mean to the operator?

The connection string is libpq's own (URL or keywords), so TLS, service files, several hosts and password
files work as they do everywhere else.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import conninfo as libpq

from headrace.errors import HeadraceError, Kind

Connection = psycopg.Connection[tuple[Any, ...]]

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "5",
}
_PINNED = {"client_encoding": "UTF8"}  # names and values travel as UTF-8, whatever the database's encoding


def with_defaults(url: str, **parameters: str) -> str:
    """`url` as a keyword string with our defaults under it and `parameters` over it.

    Raises:
        HeadraceError: CONFIG, where libpq cannot parse `url`; the text never shows it.
    """
    try:
        given = libpq.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise HeadraceError(
            Kind.CONFIG,
            "the connection string of the database cannot be parsed",
            "Write postgresql://USER@HOST:PORT/DATABASE and percent-encode special characters.",
        ) from error
    return libpq.make_conninfo("", **{**_DEFAULTS, **given, **_PINNED, **parameters})


def place(url: str) -> str:
    """Where `url` leads, for messages: `HOST:PORT/DATABASE`, without user and password."""
    given = libpq.conninfo_to_dict(url)
    return f"{given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"


def connect(url: str, *, application_name: str = "headrace", autocommit: bool = True) -> Connection:
    """Open a connection to the database that `url` names, and to no other.

    Raises:
        HeadraceError: CONNECTION, AUTHENTICATION or CONFIG.
    """
    try:
        return psycopg.connect(
            with_defaults(url, application_name=application_name),
            autocommit=autocommit,
            cursor_factory=psycopg.RawCursor,
        )
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise connection_error(error, url) from error


def connection_error(error: psycopg.Error, url: str) -> HeadraceError:
    """What a failed attempt to connect means."""
    text = " ".join(str(error).split())
    for kind, words, cause, remedy in _REFUSALS:
        if all(word in text.lower() for word in words):
            return HeadraceError(kind, cause.format(place=place(url), text=text), remedy)
    return HeadraceError(
        Kind.CONNECTION,
        f"no connection to the database at {place(url)}: {text}",
        "Check host and port and that the server runs.",
    )


_USER = "the database at {place} refused the user or the password"
_DOOR = "the database at {place} does not let this user in: {text}"
_NAME = "there is no such database at {place}"
_TLS = "no TLS connection to the database at {place}: {text}"
_URL = "the connection URL for {place} is wrong: {text}"
_CORRECT = "Correct the connection URL, or set DATABASE_URL."
_CORRECT_TLS = "Correct sslmode, sslrootcert, sslcert or sslkey in the connection URL."

# No SQLSTATE comes with a refused connection: only the words tell what waiting does not cure. The first
# row whose words all occur decides; a server that speaks another language is retried.
_REFUSALS: tuple[tuple[Kind, tuple[str, ...], str, str], ...] = (
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
    (Kind.CONFIG, ("certificate verify failed",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("root certificate",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("server certificate for",), _TLS, _CORRECT_TLS),
    (Kind.CONFIG, ("connection is bad: invalid",), _URL, _CORRECT),
    (Kind.CONFIG, ("bad value for",), _URL, _CORRECT),
)


def execute(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one statement with `$1`-style parameters and return its rows (none for a command)."""
    cursor = connection.execute(sql.encode(), parameters or None)
    return cursor.fetchall() if cursor.description is not None else []
