"""Hidden indexes for entries of a pipeline that are too many for the meta index.

Each is created by its first entry. What is written is durable when the call returns; an index is refreshed
before it is searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import failures
from headrace.sinks.opensearch.client import Answer, Client, path
from headrace.sinks.opensearch.documents import count as counted
from headrace.sinks.opensearch.shard_history import Identity, identities

Action = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""`index` or `delete`, its parameters without the index, and the stored entry."""

UNALTERED = {"translog.durability": "request", "default_pipeline": "_none", "final_pipeline": "_none"}
"""Settings that override index templates: what is acknowledged is durable and is stored as sent."""

_BATCH_SIZE = 5_000
_NDJSON = "application/x-ndjson"
_BULK = "/_bulk?filter_path=errors,items.*.status,items.*.error"
_SUCCESS = range(200, 300)
_NO_ENTRY, _NEWER = 404, 409


def system_index_body(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Build the body of a hidden index; only `properties` are searchable."""
    return {
        "settings": {
            "index": {"number_of_shards": 1, "auto_expand_replicas": "0-1", "hidden": True, **UNALTERED}
        },
        "mappings": {"dynamic": False, "properties": properties},
    }


def create_system_index(client: Client, name: str, properties: Mapping[str, Any]) -> Answer:
    """Create a hidden index; the answer's status is 400 where it exists already, or cannot be created.

    Replication is by document, so that every copy finds each entry at once. A cluster may insist on segment
    replication; then only primary shards are searched, as in all searches.
    """
    body = system_index_body(properties)
    if client.product().copies_segments:
        with_replication = {
            **body,
            "settings": {"index": {**body["settings"]["index"], "replication.type": "DOCUMENT"}},
        }
        answer = client.call("PUT", path(name), with_replication, allow=(400,))
        if answer.ok or b"replication" not in answer.data:
            return answer
    return client.call("PUT", path(name), body, allow=(400,))


class SystemIndex:
    """One hidden index; used from one thread.

    Args:
        client: of the cluster.
        name: of the index.
        properties: the searchable fields; others are only stored.
    """

    def __init__(self, client: Client, name: str, properties: Mapping[str, Any]) -> None:
        self._client = client
        self._properties = properties
        self.name = name

    @property
    def identity(self) -> Identity | None:
        """Return the index's identity; None where the index does not exist.

        It differs after a deletion and after a restore. The history of a closed index is unknown.
        """
        if (known := identities(self._client, [self.name]).get(self.name)) is not None:
            return known
        answer = self._client.read(path(self.name, "_settings"), allow=(404,))
        if not answer.ok:
            return None
        [found] = answer.json().values()
        return Identity(str(found["settings"]["index"]["uuid"]))

    def make(self) -> Identity:
        """Create the index if it does not exist; returns its identity.

        Raises:
            HeadraceError: SINK_UNREACHABLE; SINK_BUSY, where it cannot be created: it may be called again.
        """
        if (identity := self.identity) is not None:
            return identity
        answer = create_system_index(self._client, self.name, self._properties)
        if (identity := self.identity) is None:
            why = failures.reason(answer.data)
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"the index {self.name} at {answer.place} does not come to be: {why}",
                "Look at the cluster's limit of shards and at its health.",
            )
        return identity

    def refreshed(self) -> bool:
        """Refresh the index; tells whether it exists."""
        return self._client.call("POST", path(self.name, "_refresh"), allow=(404,)).ok

    def count(self, query: dict[str, Any]) -> int:
        """Count the entries that match a query; 0 without an index."""
        return counted(self._client, self.name, query) if self.refreshed() else 0

    def oldest(
        self, query: Mapping[str, Any], most: int, fields: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Search entries by ascending `version`, with all of their fields or some."""
        if not self.refreshed():
            return []
        search = {"size": most, "query": query, "sort": [{"version": "asc"}]}
        if fields is not None:
            search["_source"] = fields
        target = path(self.name, "_search", query=self._client.primaries())
        found: list[dict[str, Any]] = self._client.read(target, search).json()["hits"]["hits"]
        return found

    def write(self, actions: Iterable[Action]) -> None:
        """Carry out the actions.

        A delete of a missing entry, and a write that a newer version fences, count as done.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be done; it may be called again.
        """
        remaining = iter(actions)
        while batch := list(islice(remaining, _BATCH_SIZE)):
            lines = [json.dumps(line) for action in batch for line in self._lines(action)]
            self._send("".join(f"{line}\n" for line in lines).encode())

    def _lines(self, action: Action) -> Iterable[Mapping[str, Any]]:
        what, parameters, entry = action
        yield {what: {"_index": self.name, **parameters}}
        if entry is not None:
            yield entry

    def _send(self, body: bytes) -> None:
        answer = self._client.exchange("POST", _BULK, body, _NDJSON)
        if not answer.ok:
            raise failures.from_status(answer.status, answer.data, answer.place)
        for item in answer.json().get("items", ()):
            [(what, result)] = item.items()
            if not _is_done(what, result):
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"the index {self.name} at {answer.place} does not take an entry: "
                    f"{failures.describe_without_request(result.get('error'))}",
                    "Look at the cluster's health and its disk watermarks.",
                )


def _is_done(what: str, result: Mapping[str, Any]) -> bool:
    status, error = result["status"], result.get("error")
    if status == _NO_ENTRY:
        return what == "delete" and (error is None or error.get("type") == "index_not_found_exception")
    return status in _SUCCESS or status == _NEWER
