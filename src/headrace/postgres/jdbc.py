"""Translate a JDBC URL into libpq's parameters. Pure."""

from __future__ import annotations

from urllib.parse import unquote, unquote_plus

from headrace.errors import HeadraceError, Kind
from headrace.model.suggestion import meant

PREFIX = "jdbc:postgresql:"

_RENAMED = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslrootcert": "sslrootcert",
    "sslpassword": "sslpassword",
    "sslnegotiation": "sslnegotiation",
    "channelbinding": "channel_binding",
    "requireauth": "require_auth",
    "gssencmode": "gssencmode",
    "kerberosservername": "krbsrvname",
    "applicationname": "application_name",
    "logintimeout": "connect_timeout",
    "connecttimeout": "connect_timeout",
    "options": "options",
    "service": "service",
}
_TRANSLATED = {
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
_IGNORED = frozenset(
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


def parse_jdbc_url(url: str) -> dict[str, str]:
    """Parse `jdbc:postgresql:…` into libpq's parameters.

    Raises:
        HeadraceError: CONFIG, with the name of a parameter that has no translation; no value is shown.
    """
    location, _, query = url.removeprefix(PREFIX).partition("?")
    parameters = _address(location)
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        options[unquote_plus(name)] = unquote_plus(value)
    defaults: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered in _RENAMED:
            parameters[_RENAMED[lowered]] = value
        elif lowered in _TRANSLATED:
            target, values = _TRANSLATED[lowered]
            if value.lower() not in values:
                raise _untranslatable(f"the value of {name} has", "Write libpq's URL: postgresql://…")
            defaults[target] = values[value.lower()]
        elif lowered not in _IGNORED:
            known = [*_RENAMED, *_TRANSLATED]
            raise _untranslatable(
                f"the parameter {name[:60]!r} has",
                meant(lowered, known) or "Remove it, or write postgresql://…",
            )
    return {**defaults, **parameters}


def _address(location: str) -> dict[str, str]:
    if "@" in location:
        raise _untranslatable("user and password before the host have", "Write ?user=…&password=… behind it.")
    if not location.startswith("//"):
        return {"host": "localhost", **_database(location)}
    hosts, _, database = location[2:].partition("/")
    parameters = _database(database)
    names, ports = [], []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, ""
        names.append(name.strip("[]") or "localhost")
        ports.append(port or "5432")
    return {"host": ",".join(names), "port": ",".join(ports), **parameters}


def _database(text: str) -> dict[str, str]:
    name = unquote(text.strip("/"))
    return {"dbname": name} if name else {}


def _untranslatable(what: str, remedy: str) -> HeadraceError:
    return HeadraceError(Kind.CONFIG, f"in the JDBC URL of the database {what} no meaning here", remedy)
