"""What does a connection string mean: which server, how, and with whose password?

libpq's own forms (URL or keywords) are given to libpq as they are, so TLS, service and password files work as
everywhere else; JDBC's is translated. Two words of ours may stand behind the `?` of a URL:
`password_command` and `session_proxy`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import psycopg
from psycopg import conninfo as libpq
from psycopg import pq

from headrace.errors import HeadraceError, Kind
from headrace.postgres import jdbc
from headrace.postgres.auth_methods import allowed_methods
from headrace.postgres.password import words_of

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""A server that has vanished without a word is noticed within 30 s, whether we speak or listen."""
_PINNED = {"client_encoding": "UTF8"}  # names and values travel as UTF-8, whatever the database's encoding
_SCHEMES = ("postgresql://", "postgres://")
_COMMAND, _PROXY = "password_command", "session_proxy"
_ONE_SERVER = frozenset({"primary", "read-write"})
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """A connection string that was understood; never printed.

    Attributes:
        parameters: libpq's, as the string gives them.
        command: prints the password at each connect; empty where there is none.
        session_proxy: a proxy in between is known to give each connection a session of its own.
    """

    parameters: Mapping[str, str]
    command: tuple[str, ...] = ()
    session_proxy: bool = False

    @property
    def place(self) -> str:
        """Where it leads, for people: `HOST:PORT/DATABASE`, without user and password."""
        found = {**_surroundings(), **self.parameters}
        hosts = (found.get("host") or found.get("hostaddr") or "localhost").split(",")
        ports = (found.get("port") or "5432").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        places = ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=False))
        return f"{places}/{found.get('dbname', '')}"


def address(url: str) -> Address:
    """Understand a connection string.

    Raises:
        HeadraceError: CONFIG; the text never shows the string, and has no cause that does.
    """
    if url.startswith(jdbc.PREFIX):
        return Address(jdbc.from_jdbc(url))
    own: dict[str, str] = {}
    if url.startswith(_SCHEMES):
        _check_encoded(url)
        url, own = _without_ours(url)
    try:
        given = libpq.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise _unusable() from None  # libpq's own words quote the string
    parameters = {name: str(value) for name, value in given.items() if value is not None}
    if not all(port.isdigit() for port in parameters.get("port", "").split(",") if port):
        raise _unusable()
    command = words_of(own[_COMMAND]) if own.get(_COMMAND) else ()
    return Address(parameters, command, own.get(_PROXY, "").lower() in {"1", "true", "yes", "on"})


def application_name(slot: str) -> str:
    """What the connections of a deployment are called."""
    return f"headrace/{slot}"[:_LONGEST_NAME]


def for_slot(url: str, slot: str, password_command: Sequence[str] = ()) -> str:
    """The connection string of a deployment: the same place, its connections named `headrace/SLOT`.

    Args:
        url: in any form.
        slot: the deployment's slot.
        password_command: prints the password at each connect, in the place of one in `url`.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable.
    """
    return combined(url, {"application_name": application_name(slot)}, password_command)


def combined(url: str, words: Mapping[str, str], password_command: Sequence[str] = ()) -> str:
    """One connection string of `url` and what is to stand in the place of its parts.

    Args:
        url: in any form; may be empty.
        words: libpq's parameters.
        password_command: prints the password at each connect, in the place of one in `url`.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable.
    """
    found = address(url)
    command = tuple(password_command) or found.command
    whole = {**found.parameters, **words}
    if command:
        whole[_COMMAND] = json.dumps(command)
    if found.session_proxy:
        whole[_PROXY] = "true"
    return "postgresql://?" + "&".join(
        f"{name}={quote(value, safe='')}" for name, value in sorted(whole.items())
    )


def complete(found: Address, **parameters: str) -> str:
    """The keyword string for libpq: our defaults under what is given, and `parameters` over it.

    A run must find the same server with each of its connections: of several hosts it is the primary.

    Raises:
        HeadraceError: CONFIG, where the parameters contradict our rules.
    """
    around = _surroundings()
    given = {**around, **found.parameters}
    ours = {name: value for name, value in _DEFAULTS.items() if name not in around}
    if "," in (given.get("hostaddr") or given.get("host") or ""):
        ours["target_session_attrs"] = _one_server(given.get("target_session_attrs", "primary"))
    if "service" not in given or "require_auth" in given:
        fixed = {"require_auth": allowed_methods(given)}
    else:  # a service file's sslmode is not known here
        fixed = {"require_auth": "!md5,!password"}
    return libpq.make_conninfo("", **{**ours, **found.parameters, **_PINNED, **fixed, **parameters})


def options_with(found: Address, setting: str, value: str) -> dict[str, str]:
    """The `options` with which `setting` holds from the first statement on; {} where that is unsafe.

    A proxy may refuse options, and those of a service file are not known here: ours would replace them.
    """
    given = {**_surroundings(), **found.parameters}
    if found.session_proxy or "service" in given:
        return {}
    ours = f"-c {setting}={value.replace(' ', chr(92) + ' ')}"
    return {"options": f"{given.get('options', '')} {ours}".strip()}


def _one_server(attributes: str) -> str:
    if attributes in _ONE_SERVER:
        return attributes
    raise HeadraceError(
        Kind.CONFIG,
        f"with several hosts, target_session_attrs={attributes} could lead each connection to another server",
        "Use target_session_attrs=primary, or name one host (a standby too).",
    )


def _surroundings() -> dict[str, str]:
    """What libpq takes from the environment (PGSSLMODE, …)."""
    return {
        option.keyword.decode(): os.environ[option.envvar.decode()]
        for option in pq.Conninfo.get_defaults()
        if option.envvar is not None and option.envvar.decode() in os.environ
    }


def _check_encoded(url: str) -> None:
    """An `@` or `/` in a password would make its rest a host or a database, and show it in messages."""
    authority, _, rest = url.partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest.partition("?")[0]:
        raise _unusable()


def _without_ours(url: str) -> tuple[str, dict[str, str]]:
    """The URL without the words that libpq does not know, and those words."""
    known_user = "@" in url.partition("://")[2].partition("/")[0]
    before, at, after = url.partition("@") if known_user else ("", "", url)
    where, mark, query = after.partition("?")
    own: dict[str, str] = {}
    kept = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name in {_COMMAND, _PROXY}:
            own[name] = unquote(value)
        else:
            kept.append(part)
    if not own:
        return url, own
    return f"{before}{at}{where}{mark}{'&'.join(kept)}".removesuffix("?"), own


def _unusable() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG,
        "the connection string of the database cannot be parsed",
        "Write postgresql://USER@HOST:PORT/DATABASE and percent-encode special characters "
        "(@ is %40, / is %2F).",
    )
