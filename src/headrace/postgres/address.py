"""Parse connection strings: libpq's URLs and keywords, and JDBC URLs.

libpq parses its own forms itself, so TLS, service files and password files work as everywhere else. A JDBC
URL is translated. The query of a URL may also hold two parameters of Headrace: `password_command` and
`session_proxy`.

libpq enforces `require_auth` before it sends anything. MD5 is allowed only where the user names it, a
password in the clear only where the server's certificate is verified.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

import psycopg
from psycopg import conninfo as libpq
from psycopg import pq

from headrace.errors import HeadraceError, Kind
from headrace.model.suggestion import meant
from headrace.postgres.password import split_command

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""With these, a server that has vanished is noticed within 30 s, whether Headrace sends or waits."""
_PINNED = {"client_encoding": "UTF8"}  # names and values are sent as UTF-8, whatever the database's encoding
_SCHEMES = ("postgresql://", "postgres://")
_COMMAND, _PROXY = "password_command", "session_proxy"
_ONE_SERVER = frozenset({"primary", "read-write"})
_MAX_NAME_LENGTH = 63
_OF_STREAM = " stream"


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """A parsed connection string; it is never printed.

    Attributes:
        parameters: libpq's parameters, as the string gives them.
        command: the command that prints the password at each connect; empty where there is none.
        session_proxy: whether the user states that a proxy in between gives each connection its own session.
    """

    parameters: Mapping[str, str]
    command: tuple[str, ...] = ()
    session_proxy: bool = False

    @property
    def completed(self) -> dict[str, str]:
        """The parameters, with those that libpq takes from the environment."""
        return {**_environment(), **self.parameters}

    @property
    def place(self) -> str:
        """The server and database for messages: `HOST:PORT/DATABASE`, without user and password."""
        parameters = self.completed
        hosts = (parameters.get("host") or parameters.get("hostaddr") or "localhost").split(",")
        ports = (parameters.get("port") or "5432").split(",")
        # As libpq does: one port counts for all hosts.
        ports = ports * len(hosts) if len(ports) == 1 else ports
        places = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
        return f"{places}/{parameters.get('dbname', '')}"


def parse_address(url: str) -> Address:
    """Parse a connection string.

    Raises:
        HeadraceError: CONFIG; neither the message nor its cause shows the string.
    """
    if url.startswith(_JDBC_PREFIX):
        return Address(_parse_jdbc_url(url))
    own: dict[str, str] = {}
    if url.startswith(_SCHEMES):
        _check_encoded(url)
        url, own = _split_own_words(url)
    try:
        given = libpq.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise _unparsable_url() from None  # libpq's message quotes the string
    parameters = {name: str(value) for name, value in given.items() if value is not None}
    # libpq finds this out only when it connects, and quotes the string.
    if not all(port.isdigit() for port in parameters.get("port", "").split(",") if port):
        raise _unparsable_url()
    command = split_command(own[_COMMAND]) if own.get(_COMMAND) else ()
    return Address(parameters, command, own.get(_PROXY, "").lower() in {"1", "true", "yes", "on"})


def application_name(slot: str) -> str:
    """Return the application name of a deployment's connections."""
    return f"headrace/{slot}"[:_MAX_NAME_LENGTH]


def stream_name(slot: str) -> str:
    """Return the application name of the connections that only the stream uses."""
    # The server cuts a name at 63 bytes: the end must survive, or both names would be equal.
    return f"{application_name(slot)[: _MAX_NAME_LENGTH - len(_OF_STREAM)]}{_OF_STREAM}"


def for_slot(url: str, slot: str, password_command: Sequence[str] = ()) -> str:
    """Return a deployment's connection string: the same place, its connections named `headrace/SLOT`.

    Args:
        url: in any form.
        slot: the deployment's slot.
        password_command: prints the password at each connect, in the place of one in `url`.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable.
    """
    return with_parameters(url, {"application_name": application_name(slot)}, password_command)


def for_stream(url: str, slot: str) -> str:
    """Return the same place, its connections named as the stream's; else as `for_slot`."""
    return with_parameters(url, {"application_name": stream_name(slot)})


def with_parameters(url: str, parameters: Mapping[str, str], password_command: Sequence[str] = ()) -> str:
    """Return `url` as a URL, with some of its parameters replaced.

    Args:
        url: in any form; may be empty.
        parameters: libpq parameters that replace those of `url`.
        password_command: prints the password at each connect, in the place of one in `url`.

    Raises:
        HeadraceError: CONFIG, where `url` is not usable.
    """
    parsed = parse_address(url)
    command = tuple(password_command) or parsed.command
    merged = {**parsed.parameters, **parameters}
    if command:
        merged[_COMMAND] = json.dumps(command)
    if parsed.session_proxy:
        merged[_PROXY] = "true"
    return "postgresql://?" + urlencode(sorted(merged.items()), quote_via=quote)


def libpq_keywords(address: Address, **parameters: str) -> str:
    """Return the keyword string for libpq: our defaults below the given values, `parameters` above them.

    Every connection of a run must reach the same server: of several hosts it is the primary.

    Raises:
        HeadraceError: CONFIG, where the parameters contradict our rules.
    """
    environment = _environment()
    given = address.completed
    ours = {name: value for name, value in _DEFAULTS.items() if name not in environment}
    if "," in (given.get("hostaddr") or given.get("host") or ""):
        attributes = ours["target_session_attrs"] = given.get("target_session_attrs", "primary")
        if attributes not in _ONE_SERVER:
            raise HeadraceError(
                Kind.CONFIG,
                f"with several hosts, target_session_attrs={attributes} could lead each connection to "
                "another server",
                "Use target_session_attrs=primary, or name one host (a standby too).",
            )
    if "service" not in given or "require_auth" in given:
        fixed = {"require_auth": allowed_methods(given)}
    else:  # the sslmode of a service file is not known
        fixed = {"require_auth": "!md5,!password"}
    return libpq.make_conninfo("", **{**ours, **address.parameters, **_PINNED, **fixed, **parameters})


def _environment() -> dict[str, str]:
    """Return the parameters that libpq takes from the environment (PGSSLMODE, …)."""
    return {
        option.keyword.decode(): os.environ[option.envvar.decode()]
        for option in pq.Conninfo.get_defaults()
        if option.envvar is not None and option.envvar.decode() in os.environ
    }


def _check_encoded(url: str) -> None:
    """Refuse a URL with an unencoded `@` or `/` in its password.

    The rest of the password would become a host or a database, and appear in messages.
    """
    authority, _, rest = url.partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest.partition("?")[0]:
        raise _unparsable_url()


def _split_own_words(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without Headrace's own parameters, and those parameters."""
    # A password may contain a `?`.
    known_user = "@" in url.partition("://")[2].partition("/")[0]
    before, at, after = url.partition("@") if known_user else ("", "", url)
    location, mark, query = after.partition("?")
    parts = [part.partition("=") for part in query.split("&")]
    own = {name: unquote(value) for name, _, value in parts if name in {_COMMAND, _PROXY}}
    if not own:
        return url, own
    kept = "&".join("".join(part) for part in parts if part[0] not in own)
    return f"{before}{at}{location}{mark}{kept}".removesuffix("?"), own


def _unparsable_url() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG,
        "the connection string of the database cannot be parsed",
        "Write postgresql://USER@HOST:PORT/DATABASE and percent-encode special characters "
        "(@ is %40, / is %2F).",
    )


def allowed_methods(parameters: Mapping[str, str]) -> str:
    """Return the value of `require_auth` for a connection, the user's own included.

    A list of allowed methods is kept as it is. Our forbidden methods are added to a list of forbidden ones.

    Raises:
        HeadraceError: CONFIG where `password` is allowed and the server is not verified.
    """
    methods = [method.strip() for method in parameters.get("require_auth", "").split(",") if method.strip()]
    # Then libpq connects only over TLS with a verified certificate; with `system` it insists on verify-full.
    verified = (
        parameters.get("sslmode") in {"verify-ca", "verify-full"} or parameters.get("sslrootcert") == "system"
    )
    # libpq takes either a list of allowed methods or one of forbidden ones.
    if any(not method.startswith("!") for method in methods):
        if "password" in methods and not verified:
            raise HeadraceError(
                Kind.CONFIG,
                "require_auth allows a password in the clear, and the server's certificate is not verified",
                "Add sslmode=verify-full and sslrootcert, or take `password` out of require_auth.",
            )
        return ",".join(methods)
    forbidden = ["!md5"] if verified else ["!md5", "!password"]
    return ",".join(dict.fromkeys([*methods, *forbidden]))


_JDBC_PREFIX = "jdbc:postgresql:"

_JDBC_SAME = (
    "user password sslmode sslcert sslkey sslrootcert sslpassword sslnegotiation gssencmode options service"
)
_JDBC_RENAMED = {
    **{name: name for name in _JDBC_SAME.split()},
    "channelbinding": "channel_binding",
    "requireauth": "require_auth",
    "kerberosservername": "krbsrvname",
    "applicationname": "application_name",
    "logintimeout": "connect_timeout",
    "connecttimeout": "connect_timeout",
}
_JDBC_TRANSLATED = {
    "targetservertype": (
        "target_session_attrs",
        {
            "any": "any",
            "primary": "primary",
            "master": "primary",
            "secondary": "standby",
            "slave": "standby",
            "preferprimary": "any",
            "prefersecondary": "prefer-standby",
            "preferslave": "prefer-standby",
        },
    ),
    "loadbalancehosts": ("load_balance_hosts", {"true": "random", "false": "disable"}),
    "tcpkeepalive": ("keepalives", {"true": "1", "false": "0"}),
    "ssl": ("sslmode", {"true": "verify-full", "": "verify-full", "false": "prefer"}),
    "sslfactory": (
        "sslmode",
        {
            "org.postgresql.ssl.nonvalidatingfactory": "require",
            "org.postgresql.ssl.libpqfactory": "verify-full",
        },
    ),
}
_JDBC_IGNORED = frozenset(
    "adaptivefetch adaptivefetchmaximum adaptivefetchminimum allowencodingchanges assumeminserverversion "
    "autosave binarytransfer binarytransferdisable binarytransferenable cleanupsavepoints currentschema "
    "databasemetadatacachefields databasemetadatacachefieldsmib defaultrowfetchsize disablecolumnsanitiser "
    "escapesyntaxcallmode grouptoconcatenateescapes hostrecheckseconds loglevel loggerlevel loggerfile "
    "logunclosedconnections preferquerymode preparedstatementcachequeries preparedstatementcachesizemib "
    "preparethreshold protocolversion quotereturningidentifiers readonly readonlymode receivebuffersize "
    "rewritebatchedinserts sendbuffersize sockettimeout cancelsignaltimeout stringtype tcpnodelay "
    "unknownlength".split()
)
"""Options of the JDBC driver itself, which do not change where and how it connects."""


def _parse_jdbc_url(url: str) -> dict[str, str]:
    """Parse `jdbc:postgresql:…` into libpq's parameters.

    Raises:
        HeadraceError: CONFIG, with the name of a parameter that has no translation; no value is shown.
    """
    location, _, query = url.removeprefix(_JDBC_PREFIX).partition("?")
    parameters = _jdbc_hosts(location)
    defaults: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        lowered = name.lower()
        if lowered in _JDBC_RENAMED:
            parameters[_JDBC_RENAMED[lowered]] = value
        elif lowered in _JDBC_TRANSLATED:
            target, values = _JDBC_TRANSLATED[lowered]
            if value.lower() not in values:
                raise _untranslatable_jdbc(f"the value of {name} has", "Write libpq's URL: postgresql://…")
            defaults[target] = values[value.lower()]
        elif lowered not in _JDBC_IGNORED:
            known = [*_JDBC_RENAMED, *_JDBC_TRANSLATED]
            raise _untranslatable_jdbc(
                f"the parameter {name[:60]!r} has",
                meant(lowered, known) or "Remove it, or write postgresql://…",
            )
    return {**defaults, **parameters}


def _jdbc_hosts(location: str) -> dict[str, str]:
    if "@" in location:
        raise _untranslatable_jdbc(
            "user and password before the host have", "Write ?user=…&password=… after it."
        )
    if not location.startswith("//"):
        return {"host": "localhost", **_jdbc_database(location)}
    hosts, _, database = location[2:].partition("/")
    parameters = _jdbc_database(database)
    names, ports = [], []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        # The last colon of an IPv6 address is inside its brackets.
        if not colon or host.endswith("]"):
            name, port = host, ""
        names.append(name.strip("[]") or "localhost")
        ports.append(port or "5432")
    return {"host": ",".join(names), "port": ",".join(ports), **parameters}


def _jdbc_database(text: str) -> dict[str, str]:
    name = unquote(text.strip("/"))
    return {"dbname": name} if name else {}


def _untranslatable_jdbc(what: str, remedy: str) -> HeadraceError:
    return HeadraceError(Kind.CONFIG, f"in the JDBC URL of the database {what} no meaning here", remedy)
