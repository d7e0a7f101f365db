"""Give orders to a running pipeline at its private address."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from headrace.config.secret import Secret
from headrace.config.text_files import read_text
from headrace.errors import HeadraceError, Kind
from headrace.state.orders import OrderError
from headrace.status.protection import is_loopback

_TOKEN = "HEADRACE_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
_LOOK_SECONDS = 0.3
_ANSWER_SECONDS = 60.0


class ControlClient:
    """Asks one private address.

    Args:
        url: `http://HOST:PORT` or `https://HOST:PORT`. The certificate is checked with the system's
            authorities, or those that the variable SSL_CERT_FILE names.
        token: the token that is sent with each request, and nowhere else.

    Attributes:
        sends_in_clear: whether who reads the network reads the token.

    Raises:
        HeadraceError: USAGE: `url` is no such address.
    """

    def __init__(self, url: str, token: Secret) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise HeadraceError(
                Kind.USAGE, f"{url!r} is no private address", "Write --control-url http://HOST:PORT."
            )
        self.sends_in_clear = parts.scheme == "http" and not is_loopback(f"{parts.hostname}:")
        self._url = url.rstrip("/")
        self._token = token
        self._pool = urllib3.PoolManager(retries=False, timeout=_ANSWER_SECONDS)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of the answer.

        Raises:
            HeadraceError: what the address refused, with its code and remedy; CONNECTION.
        """
        headers = {"Authorization": f"Bearer {self._token.reveal()}"}
        try:
            answer = self._pool.request(
                method, f"{self._url}{path}", headers=headers, json=body, redirect=False
            )
            content = answer.json()
        except urllib3.exceptions.HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise self._failed(f"does not answer: {reason}") from error
        except ValueError as error:
            raise self._failed(f"answers {answer.status}, and no JSON: it is another server's") from error
        if answer.status >= 300 or not isinstance(content, dict | list):  # noqa: PLR2004 - HTTP's successes end
            raise self._refused(answer.status, content)
        return content

    def order(self, path: str, body: Mapping[str, Any] | None = None, method: str = "POST") -> dict[str, Any]:
        """Give an order; return it as it is now, or the result of one that is done at once."""
        given: dict[str, Any] = self.ask(method, path, body or {})
        return given

    def follow(self, order: Mapping[str, Any], seconds: float = math.inf) -> Any:
        """Wait until an order has ended; return its result.

        Raises:
            HeadraceError: the error that it ended with; BEHIND after `seconds`, or where another order has
                replaced it.
        """
        if "state" not in order:  # it was done at once
            return order
        end = time.monotonic() + seconds
        while order["state"] == "running":
            if time.monotonic() > end:
                raise HeadraceError(
                    Kind.BEHIND,
                    f"{order['order']} {order['index'] or ''} is not done after {seconds:g} s",
                    f"GET /v1/orders/{order['id']} follows it.",
                )
            time.sleep(_LOOK_SECONDS)
            order = self.ask("GET", f"/v1/orders/{order['id']}")
        if order["state"] == "replaced":
            raise HeadraceError(Kind.BEHIND, f"another order has replaced {order['order']} {order['index']}")
        if (error := order["error"]) is not None:
            raise OrderError.from_json(error).to_error()
        return order["result"]

    def _failed(self, how: str) -> HeadraceError:
        remedy = "Correct --control-url, or look whether `headrace run --private-address` is alive."
        return HeadraceError(Kind.CONNECTION, f"the private address {self._url} {how}", remedy)

    def _refused(self, status: int, content: object) -> HeadraceError:
        if not isinstance(content, dict) or not isinstance(content.get("detail"), str):
            return self._failed(f"answers {status}: it is another server's")
        cause = f"{self._url} refuses: {content['detail']}"
        return OrderError(str(content.get("code")), cause, str(content.get("remedy", ""))).to_error()


def index_path(index: str, rest: str) -> str:
    """Return the path of a page about an index."""
    return f"/v1/indexes/{quote(index, safe='')}/{rest}"


def quarantine_path(index: str | None, action: str = "", id_: str | None = None) -> str:
    """Return the path of a page about the quarantine, of one index or of all."""
    base = "/v1/quarantine" if index is None else index_path(index, "quarantine")
    query = "" if id_ is None else f"?{urlencode({'id': id_})}"
    return f"{base}{f'/{action}' if action else ''}{query}"


def open_client(url: str, token_file: Path | None, environ: Mapping[str, str]) -> ControlClient:
    """Return a client with the token of the file, else of the variable HEADRACE_CONTROL_TOKEN.

    Raises:
        HeadraceError: USAGE: there is no token, or `url` is no address; the file cannot be read.
    """
    if token_file is not None:
        token = read_text(token_file, "the control token's file", Kind.USAGE).strip()
    else:
        token = environ.get(_TOKEN, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise HeadraceError(
            Kind.USAGE,
            "there is no usable token for --control-url",
            f"Name --control-token-file, or set {_TOKEN}.",
        )
    return ControlClient(url, Secret(token))
