"""The address of an OpenSearch cluster, its credentials, and how requests are sent."""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from headrace.errors import HeadraceError, Kind


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A cluster's addresses and how to talk to it; picklable, its `repr` shows no password.

    Attributes:
        urls: the nodes, tried in order from the one that answered last.
        api_key: instead of user and password: `ID:KEY`, or the same in base64.
        ca_file: a PEM file that replaces the system's certificates; read where the requests are sent.
        verify: whether the server's certificate and host name are checked.
        gzip: whether request bodies are compressed (worth it over a slow or metered network only).
        timeout: seconds for an answer.
        connect_timeout: seconds for a connection.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    verify: bool = True
    gzip: bool = False
    timeout: float = 30.0
    connect_timeout: float = 5.0

    def with_timeout(self, seconds: float) -> Endpoint:
        """Return the same endpoint with shorter timeouts: `seconds` for an answer, half for a connection."""
        return replace(
            self,
            timeout=min(self.timeout, seconds),
            connect_timeout=min(self.connect_timeout, seconds / 2),
        )

    @property
    def authorization(self) -> str | None:
        """Return the authorization header, or None without credentials."""
        if self.api_key is not None:
            encoded = _base64(self.api_key) if ":" in self.api_key else self.api_key
            return f"ApiKey {encoded}"
        if self.username is not None:
            pair = f"{self.username}:{self.password or ''}"
            return f"Basic {_base64(pair)}"
        return None

    def check_ca_file(self) -> None:
        """Check that this process can read the file of certificates.

        Raises:
            HeadraceError: CONFIG.
        """
        if self.ca_file is None:
            return
        try:
            ssl.create_default_context(cafile=str(self.ca_file))
        except OSError as error:
            reason = "it holds no PEM certificates" if isinstance(error, ssl.SSLError) else error.strerror
            raise HeadraceError(
                Kind.CONFIG,
                f"the ca_file {self.ca_file} of the OpenSearch sink cannot be used: {reason}",
                "Name a PEM file that is there on every machine that writes documents.",
            ) from error

    def normalised(self) -> Self:
        """Return the same endpoint with credentials taken out of the URLs and trailing slashes removed.

        Raises:
            HeadraceError: CONFIG, where a URL is not of the form http(s)://HOST:PORT.
        """
        parsed = [_parse(url) for url in self.urls]
        if not parsed:
            raise HeadraceError(
                Kind.CONFIG, "the OpenSearch sink has no URL", 'Set url = "http://HOST:9200".'
            )
        auth = next((url.auth for url in parsed if url.auth), None)
        user, _, secret = (auth or "").partition(":")
        return replace(
            self,
            urls=tuple(url._replace(auth=None).url.rstrip("/") for url in parsed),
            username=self.username or unquote(user) or None,
            password=self.password if self.password is not None else unquote(secret) or None,
        )


def connection_warnings(endpoints: Iterable[Endpoint]) -> list[str]:
    """List, once each, the connections that others on the network can read or alter."""
    return list(dict.fromkeys(text for endpoint in endpoints for text in _warnings(endpoint.normalised())))


def _warnings(endpoint: Endpoint) -> Iterable[str]:
    for url in map(parse_url, endpoint.urls):
        place = f"{url.host}:{url.port}" if url.port else str(url.host)
        if url.scheme == "https" and not endpoint.verify:
            yield (
                f"tls_verify = false: whoever stands between here and {place} can read and alter everything; "
                "set ca_file to the PEM file of the certificate's authority instead"
            )
        if url.scheme == "http" and endpoint.authorization is not None and not _is_loopback(str(url.host)):
            yield f"the password or API key goes to {place} in the clear; use https"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _parse(text: str) -> Url:
    try:
        url = parse_url(text)
    except LocationParseError as error:
        raise _url_error() from error
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise _url_error()
    return url


def _url_error() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG,
        "the URL of the OpenSearch sink is not of the form http://HOST:PORT or https://HOST:PORT",
        "Correct it; user and password go into username and password.",
    )
