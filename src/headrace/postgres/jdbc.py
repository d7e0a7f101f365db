"""What does a JDBC URL mean to libpq? Pure."""

from __future__ import annotations

from urllib.parse import unquote, unquote_plus

from headrace.errors import HeadraceError, Kind
from headrace.model.suggestion import meant

PREFIX = "jdbc:postgresql:"

_SAME = {
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
_VALUES = {
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
_WITHOUT_MEANING = frozenset(
    "adaptivefetch adaptivefetchmaximum adaptivefetchminimum allowencodingchanges assumeminserverversion "
    "autosave binarytransfer binarytransferdisable binarytransferenable cleanupsavepoints currentschema "
    "databasemetadatacachefields databasemetadatacachefieldsmib defaultrowfetchsize disablecolumnsanitiser "
    "escapesyntaxcallmode grouptoconcatenateescapes hostrecheckseconds loglevel loggerlevel loggerfile "
    "logunclosedconnections preferquerymode preparedstatementcachequeries preparedstatementcachesizemib "
    "preparethreshold protocolversion quotereturningidentifiers readonly readonlymode receivebuffersize "
    "rewritebatchedinserts sendbuffersize sockettimeout cancelsignaltimeout stringtype tcpnodelay "
    "unknownlength".split()
)
"""Options of the JDBC driver itself, which change nothing about where and how one connects."""


def from_jdbc(url: str) -> dict[str, str]:
    """The parameters of libpq for `jdbc:postgresql:…`.

    Raises:
        HeadraceError: CONFIG, with the name of a parameter that has no translation; no value is shown.
    """
    where, _, query = url.removeprefix(PREFIX).partition("?")
    found = _address(where)
    given: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        given[unquote_plus(name)] = unquote_plus(value)
    weak: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered in _SAME:
            found[_SAME[lowered]] = value
        elif lowered in _VALUES:
            target, values = _VALUES[lowered]
            if value.lower() not in values:
                raise _untranslatable(f"the value of {name} has", "Write libpq's URL: postgresql://…")
            weak[target] = values[value.lower()]
        elif lowered not in _WITHOUT_MEANING:
            known = [*_SAME, *_VALUES]
            raise _untranslatable(
                f"the parameter {name[:60]!r} has",
                meant(lowered, known) or "Remove it, or write postgresql://…",
            )
    return {**weak, **found}


def _address(where: str) -> dict[str, str]:
    if "@" in where:
        raise _untranslatable("user and password before the host have", "Write ?user=…&password=… behind it.")
    if not where.startswith("//"):
        return {"host": "localhost", **_database(where)}
    hosts, _, database = where[2:].partition("/")
    found = _database(database)
    names, ports = [], []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, ""
        names.append(name.strip("[]") or "localhost")
        ports.append(port or "5432")
    return {"host": ",".join(names), "port": ",".join(ports), **found}


def _database(text: str) -> dict[str, str]:
    name = unquote(text.strip("/"))
    return {"dbname": name} if name else {}


def _untranslatable(what: str, remedy: str) -> HeadraceError:
    return HeadraceError(Kind.CONFIG, f"in the JDBC URL of the database {what} no meaning here", remedy)
