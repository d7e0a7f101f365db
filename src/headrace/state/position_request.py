"""Ask a running pipeline, from another process, to note its position now.

In a quiet time the applied position follows the server's log only now and then. A request that has been met,
or for which no process waits any more, has no effect.
"""

from __future__ import annotations

import datetime as dt

from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.state.key import StateKey


def position_request_document(key: StateKey) -> tuple[str, str, str]:
    """Return index, type and id of the request's document."""
    return key.meta_index, "_doc", f"{key.id}.position_request"


class PositionRequest:
    """The last position request to one pipeline.

    Two processes that wait overwrite each other's request: both repeat it while they wait.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._document = position_request_document(key.of_pipeline())

    def submit(self, lsn: Lsn) -> None:
        """Request an applied position of at least `lsn`, which the server has reached already.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        body = {"lsn": format_lsn(lsn), "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(*self._document), body)

    def read(self) -> Lsn:
        """Read the last request; 0 where there is none, or it cannot be read.

        Raises:
            HeadraceError: as `submit`.
        """
        answer = self._client.read(path(*self._document), allow=(404,))
        try:
            return parse_lsn(answer.json()["_source"]["lsn"]) if answer.ok else 0
        except (KeyError, TypeError, ValueError, AttributeError):
            return 0
