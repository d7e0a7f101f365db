"""Put indexes of a cluster back to an earlier state by a snapshot, as an operator does."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch

_WITHIN = 120.0
_OK = range(200, 300)


class Snapshot:
    """What the indexes of a node hold now, hidden ones and aliases too, in a repository of its own.

    Args:
        pattern: which indexes, as OpenSearch writes it.

    Attributes:
        indexes: those that it has.
    """

    def __init__(self, node: EmbeddedOpenSearch, pattern: str) -> None:
        self._url = node.url
        self._name = f"s{uuid.uuid4().hex[:8]}"
        self._what = {"indices": pattern, "include_global_state": False}
        where = {"type": "fs", "settings": {"location": str(node.snapshots / self._name)}}
        self._call("PUT", f"/_snapshot/{self._name}", where)
        taken = self._call("PUT", f"/_snapshot/{self._name}/one?wait_for_completion=true", self._what)
        self.indexes: list[str] = taken["snapshot"]["indices"]

    def close(self, indexes: Collection[str] = ()) -> None:
        """Close these of its indexes, as a restore in place asks for; all of them by default."""
        self._call("POST", f"/{','.join(indexes or self.indexes)}/_close")

    def delete(self) -> None:
        """Delete all of its indexes that are there."""
        self._call("DELETE", f"/{','.join(self.indexes)}?ignore_unavailable=true")

    def restore(self, indexes: Collection[str] = ()) -> None:
        """Put these of its indexes back, which are closed or gone; all of them by default."""
        what = self._what | ({"indices": ",".join(indexes)} if indexes else {})
        target = f"/_snapshot/{self._name}/one/_restore?wait_for_completion=true"
        shards = self._call("POST", target, what)["snapshot"]["shards"]
        assert shards["failed"] == 0, shards

    def restore_in_place(self, indexes: Collection[str] = ()) -> None:
        """Close and restore these of its indexes; all of them by default. They keep their UUIDs."""
        self.close(indexes)
        self.restore(indexes)

    def _call(self, method: str, target: str, body: object = None) -> dict[str, Any]:
        answer = urllib3.request(method, self._url + target, json=body, timeout=_WITHIN)
        assert answer.status in _OK, answer.data
        found: dict[str, Any] = answer.json()
        return found
