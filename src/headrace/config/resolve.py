"""Resolve a deployment's references, in the environment where its pipeline runs.

An explicit reference names its own source and is never overridden. A reserved variable overrides a literal of
the file, and supplies a value that the file leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from headrace.config.deployment import (
    DATABASE_VARIABLES,
    PASSWORD_VARIABLE,
    ConnectionParts,
    Deployment,
    OpenSearchSink,
    is_connection_string,
    reserved,
)
from headrace.config.mirror import MirrorConfig
from headrace.config.secret import Secret
from headrace.config.value import EnvReference
from headrace.errors import ErrorGroup, HeadraceError, Kind

_NEXT_URL = re.compile(r"\s*,\s*(?=https?://)")
_UNSENDABLE_IN_LOGIN = re.compile(r"[\x00-\x1f\x7f]")
_UNSENDABLE_IN_TOKEN = re.compile(r"[^ -~\xa0-\xff]")
"""A header takes no other letters; the library that sends it would quote it in its error."""
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ResolvedEndpoint:
    """A cluster's nodes and credentials; `urls` hold no credentials and no trailing slash."""

    urls: tuple[str, ...]
    username: Secret | None = None
    password: Secret | None = None
    api_key: Secret | None = None
    bearer_token: Secret | None = None
    ca_file: Path | None = None
    gzip: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The values of a deployment that its environment decides.

    Attributes:
        database_url: libpq's connection string.
        endpoints: the OpenSearch sinks' addresses, by sink name.
        overridden: the reserved variables that override the file.
        password_command: the words of the command that prints the password at each connect.
    """

    database_url: Secret
    endpoints: Mapping[str, ResolvedEndpoint]
    overridden: tuple[str, ...]
    password_command: tuple[str, ...] = ()


def resolve(deployment: Deployment) -> Resolved:
    """Resolve `deployment` in the environment that it was loaded in.

    Raises:
        ErrorGroup: CONFIG; every variable that is not set, every value that is not usable.
    """
    resolution = _Resolution(deployment)
    database = resolution.database()
    endpoints = {
        name: resolution.endpoint(name, sink)
        for name, sink in deployment.sinks.items()
        if isinstance(sink, OpenSearchSink)
    }
    if resolution.errors:
        raise ErrorGroup(resolution.errors)
    command = deployment.source.password_command
    return Resolved(database, endpoints, tuple(resolution.overridden), tuple(command or ()))


def resolve_database(deployment: Deployment) -> Secret:
    """Resolve the database alone, for work that needs no cluster.

    Raises:
        ErrorGroup: CONFIG, as `resolve`.
    """
    resolution = _Resolution(deployment)
    database = resolution.database()
    if resolution.errors:
        raise ErrorGroup(resolution.errors)
    return database


def resolve_mirror(deployment: Deployment) -> tuple[Secret, MirrorConfig]:
    """Resolve the database and `[mirror]`, which must be there; its `mask_salt` is a text then.

    Raises:
        ErrorGroup: CONFIG, as `resolve`.
    """
    config = deployment.mirror
    assert config is not None
    resolution = _Resolution(deployment)
    database, salt = resolution.database(), resolution.mask_salt(config)
    if resolution.errors:
        raise ErrorGroup(resolution.errors)
    return database, config.model_copy(update={"mask_salt": salt})


class _Resolution:
    """One pass over a deployment, which notes what is missing."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._environment = deployment.environment
        self.errors: list[HeadraceError] = []
        self.overridden: list[str] = []

    def database(self) -> Secret:
        url, parameters = self._address(), self._deployment.source.tls_parameters()
        return Secret(_with_parameters(url.reveal(), parameters)) if url and parameters else url

    def _address(self) -> Secret:
        given = self._deployment.source.connection_url
        if isinstance(given, ConnectionParts):
            if not any(name in self._environment for name in DATABASE_VARIABLES):
                return Secret(self._url_of(given))
            given = Secret("postgresql://")
        value = self._value("source.connection_url", given, *DATABASE_VARIABLES)
        if value is None:
            self._missing("source.connection_url", DATABASE_VARIABLES[0])
            return Secret("")
        if value and not is_connection_string(value.reveal()):
            self._note(
                "the value of source.connection_url is no connection string",
                "Write postgresql://USER@HOST:PORT/DATABASE and percent-encode special characters.",
            )
        return value

    def _url_of(self, parts: ConnectionParts) -> str:
        """Return the URL of `parts`, each percent-encoded; hosts may be folders or IPv6 addresses."""
        password = self._value("source.connection_url.password", parts.password, PASSWORD_VARIABLE)
        user = quote(parts.user, safe="") + (f":{quote(password.reveal(), safe='')}" if password else "")
        # A port that stands once would count for the last host alone.
        hosts = [
            f"[{host}]" if ":" in host and "/" not in host else quote(host, safe="")
            for host in parts.host.split(",")
        ]
        places = ",".join(f"{host}:{parts.port}" for host in hosts)
        url = f"postgresql://{user}@{places}/{quote(parts.database, safe='')}"
        return f"{url}?{urlencode(parts.parameters, quote_via=quote)}" if parts.parameters else url

    def mask_salt(self, config: MirrorConfig) -> Secret | None:
        return self._value("mirror.mask_salt", config.mask_salt)

    def endpoint(self, name: str, sink: OpenSearchSink) -> ResolvedEndpoint:
        place = f"sinks.{name}"

        def value_of(key: str, given: Secret | EnvReference | None) -> Secret | None:
            return self._value(f"{place}.{key}", given, *reserved(name, key))

        def text_of(
            key: str, given: Secret | EnvReference | None, unsendable: re.Pattern[str]
        ) -> Secret | None:
            value = value_of(key, given)
            if value and unsendable.search(value.reveal()):
                self._note(
                    f"{place}.{key} has a line end, or another letter that no request can carry",
                    "Write it without: `echo` adds a line end to what it prints, `printf %s` does not.",
                )
            return value

        username = text_of("username", sink.username, _UNSENDABLE_IN_LOGIN)
        password = text_of("password", sink.password, _UNSENDABLE_IN_LOGIN)
        api_key = text_of("api_key", sink.api_key, _UNSENDABLE_IN_TOKEN)
        bearer_token = text_of("bearer_token", sink.bearer_token, _UNSENDABLE_IN_TOKEN)
        nodes = [self._split(place, text) for text in self._nodes(name, sink)]
        urls = tuple(url for url, _, _ in nodes if url)
        username = username or next(filter(None, (user for _, user, _ in nodes)), None)
        password = password or next(filter(None, (secret for _, _, secret in nodes)), None)
        ways = {
            "a user": username or password,
            "an api_key": api_key,
            "a bearer_token": bearer_token,
            "an aws_region": sink.aws_region,
        }
        self._check_one_login(place, ways)
        ca_given = value_of("ca_file", None)
        ca_file = Path(ca_given.reveal()) if ca_given else sink.ca_file
        self._check_fingerprint(place, sink, ca_file)
        gzip = self._gzip(name, given=sink.gzip)
        return ResolvedEndpoint(urls, username, password, api_key, bearer_token, ca_file, gzip)

    def _check_one_login(self, place: str, ways: Mapping[str, object]) -> None:
        given = [way for way, value in ways.items() if value]
        if len(given) > 1:
            self._note(f"{place} has {' and '.join(given)}, each of which is a way to log in", "Keep one.")

    def _check_fingerprint(self, place: str, sink: OpenSearchSink, ca_file: Path | None) -> None:
        # The file is checked where it is read; a CA from the environment is known only here.
        if sink.ca_fingerprint and (ca_file or not sink.tls_verify):
            problem = f"{place} has a ca_fingerprint beside a ca_file or tls_verify = false"
            self._note(problem, "Keep the fingerprint alone.")

    def _nodes(self, name: str, sink: OpenSearchSink) -> list[str]:
        """Return the addresses of all nodes; a text with several separates them by commas."""
        place, variables = f"sinks.{name}.url", reserved(name, "url")
        addresses = sink.url if isinstance(sink.url, tuple) else (sink.url,)
        # A variable gives all nodes in one text.
        literal = not any(isinstance(address, EnvReference) for address in addresses)
        if literal and any(variable in self._environment for variable in variables):
            addresses = addresses[:1]
        values = [self._value(place, address, *(variables if literal else ())) for address in addresses]
        if values == [None]:
            self._missing(place, variables[0])
        return [text for value in values if value for text in _NEXT_URL.split(value.reveal().strip())]

    def _gzip(self, name: str, *, given: bool) -> bool:
        value = self._value(f"sinks.{name}.gzip", None, *reserved(name, "gzip"))
        if value is None:
            return given
        if value.reveal().lower() not in _YES_OR_NO:
            problem = f"the variable for sinks.{name}.gzip is neither true nor false"
            self._note(problem, "Write true or false.")
        return _YES_OR_NO.get(value.reveal().lower(), given)

    def _split(self, place: str, url: str) -> tuple[str, Secret | None, Secret | None]:
        """Return the address without its credentials, which apply where the file has none of its own."""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = None
        if not usable or parts.query or parts.fragment:
            self._note(f"{place}.url is no address of a cluster", "Write https://HOST:PORT.")
            return "", None, None
        # Addresses stand in logs and in /status.
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        user, secret = (Secret(unquote(part)) if part else None for part in (parts.username, parts.password))
        return bare, user, secret

    def _value(self, place: str, given: Secret | EnvReference | None, *overrides: str) -> Secret | None:
        # A reference says where the value is, so no reserved variable overrides it.
        if isinstance(given, EnvReference):
            value = self._environment.get(given.env)
            if value is None:
                problem = f"{place} refers to the environment variable {given.env}, which is not set"
                self._note(problem, f"Set {given.env}.")
                return Secret("")
            return value
        for override in overrides:
            if override in self._environment:
                if given is not None:
                    self.overridden.append(override)
                return self._environment[override]
        return given

    def _missing(self, place: str, variable: str) -> None:
        self._note(f"{place} has no value", f"Write it into the file, or set {variable}.")

    def _note(self, problem: str, remedy: str) -> None:
        self.errors.append(HeadraceError(Kind.CONFIG, f"{self._deployment.file}: {problem}", remedy))


def _with_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """Return a connection string with further parameters at its end, where they win over earlier ones."""
    if "://" not in url.partition("=")[0] and not url.startswith("jdbc:"):
        values = (value.replace("\\", "\\\\").replace("'", "\\'") for value in parameters.values())
        words = (f"{name}='{value}'" for name, value in zip(parameters, values, strict=True))
        return " ".join([url, *words])
    pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
    # As libpq reads it: a user ends with the first @, and the password before it may contain a `?`.
    has_user = url.startswith("postgres") and "@" in url.partition("://")[2].partition("/")[0]
    rest = url.partition("@")[2] if has_user else url
    return f"{url}{'&' if '?' in rest else '?'}{pairs}"
