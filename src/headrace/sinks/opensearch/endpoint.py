"""Where is the cluster, how does one get in, and how are requests sent?"""

from __future__ import annotations

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
        ca_bundle: a PEM file that replaces the system's certificates.
        verify: whether the server's certificate and host name are checked.
        gzip: whether request bodies are compressed (worth it over a slow or metered network only).
        timeout: seconds for an answer.
        connect_timeout: seconds for a connection.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None
    verify: bool = True
    gzip: bool = False
    timeout: float = 30.0
    connect_timeout: float = 5.0

    def normalised(self) -> Self:
        """The same endpoint with credentials taken out of the URLs and trailing slashes removed.

        Raises:
            HeadraceError: CONFIG, where a URL is not of the form http(s)://HOST:PORT.
        """
        parsed = [_parsed(url) for url in self.urls]
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


def _parsed(text: str) -> Url:
    try:
        url = parse_url(text)
    except LocationParseError as error:
        raise _unusable() from error
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise _unusable()
    return url


def _unusable() -> HeadraceError:
    return HeadraceError(
        Kind.CONFIG,
        "the URL of the OpenSearch sink is not of the form http://HOST:PORT or https://HOST:PORT",
        "Correct it; user and password go into username and password.",
    )
