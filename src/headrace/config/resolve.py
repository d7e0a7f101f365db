"""Which values does a deployment have here, in the environment where its pipeline runs?

An explicit reference names its own source and is never overridden; a reserved variable comes before what the
file says literally, and fills what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headrace.config.deployment import (
    ConnectionParts,
    Deployment,
    EnvReference,
    OpenSearchSink,
    is_connection_string,
    reserved,
)
from headrace.config.problems import ConfigErrors
from headrace.config.secret import Secret
from headrace.errors import HeadraceError, Kind

_DATABASE_URL = "DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A cluster's address; `url` holds no credentials and no trailing slash."""

    url: str
    username: Secret | None
    password: Secret | None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The values of a deployment that its environment decides.

    Attributes:
        database_url: libpq's connection string.
        endpoints: the OpenSearch sinks' addresses, by sink name.
        overridden: the reserved variables that won over the file.
        password_command: the words of the command that is asked for the password at each connect.
    """

    database_url: Secret
    endpoints: Mapping[str, Endpoint]
    overridden: tuple[str, ...]
    password_command: tuple[str, ...] = ()


def resolve(deployment: Deployment) -> Resolved:
    """The values of `deployment` in the environment that it was loaded in.

    Raises:
        ConfigErrors: CONFIG; every variable that is not set, every value that is not usable.
    """
    run = _Resolution(deployment)
    database = run.database()
    endpoints = {
        name: run.endpoint(name, sink)
        for name, sink in deployment.sinks.items()
        if isinstance(sink, OpenSearchSink)
    }
    if run.errors:
        raise ConfigErrors(run.errors)
    command = deployment.source.password_command
    return Resolved(database, endpoints, tuple(run.overridden), tuple(command or ()))


def resolve_database(deployment: Deployment) -> Secret:
    """The database alone, for work that needs no cluster.

    Raises:
        ConfigErrors: CONFIG, as `resolve`.
    """
    run = _Resolution(deployment)
    database = run.database()
    if run.errors:
        raise ConfigErrors(run.errors)
    return database


class _Resolution:
    """One pass over a deployment; notes what is missing."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._environment = deployment.environment
        self.errors: list[HeadraceError] = []
        self.overridden: list[str] = []

    def database(self) -> Secret:
        given = self._deployment.source.connection_url
        if isinstance(given, ConnectionParts):
            if _DATABASE_URL not in self._environment:
                return Secret(self._url_of(given))
            given = Secret("postgresql://")
        value = self._value("source.connection_url", given, _DATABASE_URL)
        if value is None:
            self._missing("source.connection_url", _DATABASE_URL)
            return Secret("")
        if value and not is_connection_string(value.reveal()):
            self._note(
                "the value of source.connection_url is no connection string",
                "Write postgresql://USER@HOST:PORT/DATABASE and percent-encode special characters.",
            )
        return value

    def _url_of(self, parts: ConnectionParts) -> str:
        """The URL of `parts`, each percent-encoded; a host that is a folder or an IPv6 address works."""
        password = self._value("source.connection_url.password", parts.password, None)
        user = quote(parts.user, safe="") + (f":{quote(password.reveal(), safe='')}" if password else "")
        host = (
            f"[{parts.host}]" if ":" in parts.host and "/" not in parts.host else quote(parts.host, safe=",")
        )
        more = "&".join(
            f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in parts.parameters.items()
        )
        where = f"postgresql://{user}@{host}:{parts.port}/{quote(parts.database, safe='')}"
        return f"{where}?{more}" if more else where

    def endpoint(self, name: str, sink: OpenSearchSink) -> Endpoint:
        place = f"sinks.{name}"
        url = self._value(f"{place}.url", sink.url, reserved(name, "url"))
        username = self._value(f"{place}.username", sink.username, reserved(name, "username"))
        password = self._value(f"{place}.password", sink.password, reserved(name, "password"))
        if url is None:
            self._missing(f"{place}.url", reserved(name, "url"))
        if not url:
            return Endpoint("", username, password)
        return self._split(place, url.reveal(), username, password)

    def _split(self, place: str, url: str, username: Secret | None, password: Secret | None) -> Endpoint:
        """The address without its credentials, which count where the file has none of its own."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = None
        if not usable or parts.query or parts.fragment:
            self._note(f"{place}.url is no address of a cluster", "Write https://HOST:PORT.")
            return Endpoint("", username, password)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        return Endpoint(
            bare,
            username or (Secret(unquote(parts.username)) if parts.username else None),
            password or (Secret(unquote(parts.password)) if parts.password else None),
        )

    def _value(self, place: str, given: Secret | EnvReference | None, override: str | None) -> Secret | None:
        if isinstance(given, EnvReference):
            value = self._environment.get(given.env)
            if value is None:
                self._note(
                    f"{place} refers to the environment variable {given.env}, which is not set",
                    f"Set {given.env}.",
                )
                return Secret("")
            return value
        if override is not None and override in self._environment:
            if given is not None:
                self.overridden.append(override)
            return self._environment[override]
        return given

    def _missing(self, place: str, variable: str) -> None:
        self._note(f"{place} has no value", f"Write it into the file, or set {variable}.")

    def _note(self, problem: str, remedy: str) -> None:
        self.errors.append(HeadraceError(Kind.CONFIG, f"{self._deployment.file}: {problem}", remedy))
