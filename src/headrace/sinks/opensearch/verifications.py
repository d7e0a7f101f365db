"""Note how the last verification of each index ended, so that a run can show it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.state_key import StateKey


class Verifications:
    """The results of the last verifications of one pipeline's indexes, in the meta index."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key

    def note(self, index: str, result: str) -> None:
        """Note the result of a verification that ends now.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._client.call(
            "PUT", path(self._key.meta_index, "_doc", self._id(index)), {"at": at, "result": result}
        )

    def results(self, indexes: Iterable[str]) -> dict[str, str]:
        """Return time and result of the last verification of those indexes that have one."""
        names = {self._id(index): index for index in indexes}
        if not names:
            return {}
        answer = self._client.read(path(self._key.meta_index, "_mget"), {"ids": list(names)}, allow=(404,))
        found = answer.json()["docs"] if answer.ok else []
        return {
            names[document["_id"]]: f"{_minute(document['_source']['at'])}: {document['_source']['result']}"
            for document in found
            if document.get("found")
        }

    def forget(self, index: str) -> None:
        """Delete the result of an index."""
        self._client.call("DELETE", path(self._key.meta_index, "_doc", self._id(index)), allow=(404,))

    def _id(self, index: str) -> str:
        return f"{self._key.id}.verified.{index}"


def _minute(at: str) -> str:
    return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")
