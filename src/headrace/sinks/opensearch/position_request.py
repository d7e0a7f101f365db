"""How does somebody elsewhere ask a pipeline to note now how far it is?

In a quiet time the applied position follows the server's log only now and then. Who waits for a place in the
log says so in a document beside the pipeline's state; whoever runs the pipeline looks there. A wish that has
come true, or that nobody waits for any more, does nothing.
"""

from __future__ import annotations

import datetime as dt

from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.client import Client, path


def position_request_document(index: str, slot: str) -> tuple[str, str, str]:
    """Where the wish stands; no slot's name has a dot."""
    return index, "_doc", f"{slot}.wish"


class PositionRequest:
    """The last wish to one pipeline. Two who wait overwrite each other's: both ask again while they wait."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._document = position_request_document(f"{prefix}headrace_meta", slot)

    def make(self, lsn: Lsn) -> None:
        """Ask for an applied position of at least `lsn`, a place that the server has reached already.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        body = {"lsn": format_lsn(lsn), "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(*self._document), body)

    def read(self) -> Lsn:
        """What was asked for last; 0 where nothing was, or what stands there cannot be read.

        Raises:
            HeadraceError: as `make`.
        """
        answer = self._client.read(path(*self._document), allow=(404,))
        try:
            return parse_lsn(answer.json()["_source"]["lsn"]) if answer.ok else 0
        except (KeyError, TypeError, ValueError, AttributeError):
            return 0
