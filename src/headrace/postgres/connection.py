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
    except psycopg.OperationalError as error:
        raise connection_error(error, url) from error


def connection_error(error: psycopg.Error, url: str) -> HeadraceError:
    """What a failed attempt to connect means."""
    text = " ".join(str(error).split())
    lowered = text.lower()
    if "password authentication failed" in lowered or "no password supplied" in lowered:
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"the database at {place(url)} refused the user or the password",
            "Correct the connection URL, or set DATABASE_URL.",
        )
    if "pg_hba.conf" in lowered:
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"the database at {place(url)} does not let this user in from here: {text}",
            "Add a line to pg_hba.conf, or correct sslmode.",
        )
    if 'database "' in lowered and "does not exist" in lowered:
        return HeadraceError(
            Kind.CONFIG, f"there is no such database at {place(url)}", "Correct the connection URL."
        )
    return HeadraceError(
        Kind.CONNECTION,
        f"no connection to the database at {place(url)}: {text}",
        "Check host and port and that the server runs.",
    )


def execute(connection: Connection, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Run one statement with `$1`-style parameters and return its rows (none for a command)."""
    cursor = connection.execute(sql.encode(), parameters or None)
    return cursor.fetchall() if cursor.description is not None else []
