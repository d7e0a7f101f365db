"""The address of an OpenSearch cluster, its credentials, and how requests are sent."""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from headrace.errors import HeadraceError, Kind

_SERVERLESS = ".aoss.amazonaws.com"
"""The end of the addresses of OpenSearch Serverless."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A cluster's addresses and how to talk to it; picklable, its `repr` shows no password.

    Attributes:
        urls: the nodes, tried in order from the one that answered last; without credentials, and without a
            slash at the end.
        api_key: instead of user and password: `ID:KEY`, or the same in base64.
        bearer_token: instead of the others: a token as it is sent.
        aws_region: instead of the others: sign requests for this region, with the process's own credentials.
        client_cert: a PEM file with the certificate that is shown to the server, and its key.
        client_key: a PEM file with the key, where `client_cert` lacks it.
        ca_file: a PEM file that replaces the system's certificates; read where the requests are sent.
        ca_fingerprint: instead of `ca_file`: the SHA-256 of the authority's certificate, in hexadecimal.
        verify: whether the server's certificate and host name are checked.
        gzip: whether request bodies are compressed (worth it over a slow or metered network only).
        timeout: seconds for an answer.
        connect_timeout: seconds for a connection.

    Raises:
        HeadraceError: CONFIG, where a URL is not of the form http(s)://HOST:PORT.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    aws_region: str | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    ca_file: Path | None = None
    ca_fingerprint: str | None = None
    verify: bool = True
    gzip: bool = False
    timeout: float = 30.0
    connect_timeout: float = 5.0

    def with_timeout(self, seconds: float) -> Endpoint:
        """Return the same endpoint with shorter timeouts: `seconds` for an answer, half for a connection."""
        return replace(
            self, timeout=min(self.timeout, seconds), connect_timeout=min(self.connect_timeout, seconds / 2)
        )

    @property
    def authorization(self) -> str | None:
        """Return the authorization header; None without credentials, or where each request is signed."""
        if self.bearer_token is not None:
            return f"Bearer {self.bearer_token}"
        if self.api_key is not None:
            encoded = _base64(self.api_key) if ":" in self.api_key else self.api_key
            return f"ApiKey {encoded}"
        if self.username is not None:
            pair = f"{self.username}:{self.password or ''}"
            return f"Basic {_base64(pair)}"
        return None

    def check_files(self) -> None:
        """Check that this process can read the files of certificates.

        Raises:
            HeadraceError: CONFIG.
        """
        if self.ca_file is not None:
            try:
                ssl.create_default_context(cafile=str(self.ca_file))
            except OSError as error:
                why = "it holds no PEM certificates"
                raise _unusable_file("ca_file", self.ca_file, error, why) from error
        if self.client_cert is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                    self.client_cert, self.client_key, password=_no_password
                )
            except (OSError, _LockedKeyError) as error:
                why = "certificate and key are no PEM without a passphrase, or do not fit together"
                raise _unusable_file("client_cert", self.client_cert, error, why) from error

    def __post_init__(self) -> None:
        if not self.urls:
            raise HeadraceError(
                Kind.CONFIG, "the OpenSearch sink has no URL", 'Set url = "http://HOST:9200".'
            )
        for url in self.urls:
            _check_url(url)


class _LockedKeyError(Exception):
    """A key is encrypted."""


def _no_password() -> str:
    """Refuse to open an encrypted key; OpenSSL would ask at the terminal."""
    raise _LockedKeyError


def _unusable_file(key: str, file: Path, error: Exception, otherwise: str) -> HeadraceError:
    reason = (
        error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else otherwise
    )
    return HeadraceError(
        Kind.CONFIG,
        f"the {key} {file} of the OpenSearch sink cannot be used: {reason}",
        "Name a PEM file that is there on every machine that writes documents.",
    )


def connection_warnings(endpoints: Iterable[Endpoint]) -> list[str]:
    """List, once each, the connections that others on the network can read or alter."""
    return list(dict.fromkeys(text for endpoint in endpoints for text in _warnings(endpoint)))


def _warnings(endpoint: Endpoint) -> Iterable[str]:
    for url in map(parse_url, endpoint.urls):
        place = f"{url.host}:{url.port}" if url.port else str(url.host)
        if url.scheme == "https" and not endpoint.verify:
            yield (
                f"tls_verify = false: whoever stands between here and {place} can read and alter everything; "
                "set ca_file to the PEM file of the certificate's authority instead"
            )
        logs_in = endpoint.authorization is not None or endpoint.aws_region is not None
        if url.scheme == "http" and logs_in and not _is_loopback(str(url.host)):
            yield f"the password, key or token goes to {place} in the clear; use https"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _check_url(text: str) -> None:
    try:
        url = parse_url(text)
    except LocationParseError:
        url = Url()
    # Messages and reports show the URLs: no password may stand in them.
    if url.scheme not in ("http", "https") or not url.host or url.auth or url.query or url.fragment:
        raise HeadraceError(
            Kind.CONFIG,
            "the URL of the OpenSearch sink is not of the form http://HOST:PORT or https://HOST:PORT",
            "Correct it; user and password go into username and password.",
        )
    if url.host.endswith(_SERVERLESS):
        raise HeadraceError(
            Kind.CONFIG,
            f"{url.host} is a collection of OpenSearch Serverless, which keeps no versions of documents: an "
            "old write could undo a newer one",
            "Use a domain of Amazon OpenSearch Service (with aws_region), or a cluster of your own.",
        )
