"""Where does a pipeline keep entries that are too many for the meta index? In hidden indexes of their own.

Each is made by the first entry. What is written is durable when the call returns; what is searched is
refreshed first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import failures
from headrace.sinks.opensearch.client import Answer, Client, path
from headrace.sinks.opensearch.contents import count as counted
from headrace.sinks.opensearch.shard_history import Identity, identities

Action = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""`index` or `delete`, its parameters without the index, and what is kept."""

UNALTERED = {"translog.durability": "request", "default_pipeline": "_none", "final_pipeline": "_none"}
"""What is acknowledged is durable, and is what was sent, whatever an index template says."""

_AT_ONCE = 5_000
_NDJSON = "application/x-ndjson"
_BULK = "/_bulk?filter_path=errors,items.*.status,items.*.error"
_SUCCESS = range(200, 300)
_NO_ENTRY, _NEWER = 404, 409


def hidden(properties: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an index that users do not see; only `properties` are searched, the rest is kept."""
    return {
        "settings": {
            "index": {"number_of_shards": 1, "auto_expand_replicas": "0-1", "hidden": True, **UNALTERED}
        },
        "mappings": {"dynamic": False, "properties": properties},
    }


def make_system_index(client: Client, name: str, properties: Mapping[str, Any]) -> Answer:
    """Make such an index, where there is none; status 400 where there is one already, or cannot be one.

    Each replica writes by itself, so that every copy finds what is there. A cluster may insist on another
    way; then only the primary shards are asked, as everywhere.
    """
    body = hidden(properties)
    if client.product().copies_segments:
        pinned = {
            **body,
            "settings": {"index": {**body["settings"]["index"], "replication.type": "DOCUMENT"}},
        }
        answer = client.call("PUT", path(name), pinned, allow=(400,))
        if answer.ok or b"replication" not in answer.data:
            return answer
    return client.call("PUT", path(name), body, allow=(400,))


class SystemIndex:
    """One hidden index; used from one thread.

    Args:
        properties: of what is searched; the rest is only kept.
    """

    def __init__(self, client: Client, name: str, properties: Mapping[str, Any]) -> None:
        self._client = client
        self._properties = properties
        self.name = name

    @property
    def identity(self) -> Identity | None:
        """Another one for each index that ever had the name, and after a restore; None where there is none.

        Nothing is known of the history of one that is closed.
        """
        if (known := identities(self._client, [self.name]).get(self.name)) is not None:
            return known
        answer = self._client.read(path(self.name, "_settings"), allow=(404,))
        if not answer.ok:
            return None
        [found] = answer.json().values()
        return Identity(str(found["settings"]["index"]["uuid"]))

    def make(self) -> Identity:
        """Make sure that it is there; its identity.

        Raises:
            HeadraceError: SINK_UNREACHABLE; SINK_BUSY, where it does not come to be: it may be called again.
        """
        if (identity := self.identity) is not None:
            return identity
        answer = make_system_index(self._client, self.name, self._properties)
        if (identity := self.identity) is None:
            why = failures.reason(answer.data)
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"the index {self.name} at {answer.place} does not come to be: {why}",
                "Look at the cluster's limit of shards and at its health.",
            )
        return identity

    def refreshed(self) -> bool:
        """Let a search find what is kept; whether there is an index for it."""
        return self._client.call("POST", path(self.name, "_refresh"), allow=(404,)).ok

    def count(self, query: dict[str, Any]) -> int:
        """How many entries a query finds; 0 where there is no index."""
        return counted(self._client, self.name, query) if self.refreshed() else 0

    def oldest(
        self, query: Mapping[str, Any], most: int, fields: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """The hits of a query, of the lowest `version` first, with all of an entry or these fields."""
        if not self.refreshed():
            return []
        asked = {"size": most, "query": query, "sort": [{"version": "asc"}]}
        if fields is not None:
            asked["_source"] = fields
        target = path(self.name, "_search", query=self._client.primaries())
        found: list[dict[str, Any]] = self._client.read(target, asked).json()["hits"]["hits"]
        return found

    def write(self, actions: Iterable[Action]) -> None:
        """Carry them out; a delete of nothing and what a newer version fences are done.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be done; it may be called again.
        """
        left = iter(actions)
        while some := list(islice(left, _AT_ONCE)):
            lines = [json.dumps(line) for action in some for line in self._lines(action)]
            self._send("".join(f"{line}\n" for line in lines).encode())

    def _lines(self, action: Action) -> Iterable[Mapping[str, Any]]:
        what, parameters, kept = action
        yield {what: {"_index": self.name, **parameters}}
        if kept is not None:
            yield kept

    def _send(self, body: bytes) -> None:
        answer = self._client.exchange("POST", _BULK, body, _NDJSON)
        if not answer.ok:
            raise failures.from_status(answer.status, answer.data, answer.place)
        for item in answer.json().get("items", ()):
            [(what, told)] = item.items()
            if not _is_done(what, told):
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"the index {self.name} at {answer.place} does not take an entry: "
                    f"{failures.in_the_way(told.get('error'))}",
                    "Look at the cluster's health and its disk watermarks.",
                )


def _is_done(what: str, told: Mapping[str, Any]) -> bool:
    status, error = told["status"], told.get("error")
    if status == _NO_ENTRY:
        return what == "delete" and (error is None or error.get("type") == "index_not_found_exception")
    return status in _SUCCESS or status == _NEWER
