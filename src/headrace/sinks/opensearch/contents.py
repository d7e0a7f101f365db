"""What is in an index?

By scroll in `_doc` order: one consistent view, no sort to compute, the same on every version of
OpenSearch. What is not refreshed is not seen: call `refresh` first. Primary shards are asked: those of an
index with segment replication alone have everything then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Answer, Client, path

_KEEP_ALIVE = "10m"
_POLL_SECONDS = 0.02


def ids(client: Client, index: str, *, size: int = 10_000) -> Iterator[str]:
    """The id of every document, in no order that means anything."""
    for hit in _hits(client, index, {"size": size, "_source": False}):
        yield hit["_id"]


def documents(client: Client, index: str, *, size: int = 1_000) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and content of every document."""
    for hit in _hits(client, index, {"size": size}):
        yield hit["_id"], hit["_source"]


def document(client: Client, index: str, identity: str, routing: str | None = None) -> dict[str, Any] | None:
    """One document as it is now, refreshed or not; None where there is none."""
    query = client.primaries() | ({} if routing is None else {"routing": routing})
    answer = client.read(path(index, "_doc", identity, query=query), allow=(404,))
    found = answer.json()
    return found["_source"] if found.get("found") else None


def count(client: Client, index: str, query: dict[str, Any] | None = None) -> int:
    """How many documents a search finds: all, or those of `query`."""
    body = None if query is None else {"query": query}
    return int(_whole(client.read(path(index, "_count", query=client.primaries()), body), index)["count"])


def refresh(client: Client, index: str) -> None:
    """Make everything that was written findable, on the primary shards at least.

    Raises:
        HeadraceError: SINK_BUSY also where a shard does not do it.
    """
    answer = client.call("POST", path(index, "_refresh"))
    if failed := answer.json()["_shards"]["failed"]:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"{failed} shards of the index {index} at {answer.place} are not refreshed",
            "Look at the cluster's health.",
        )


def await_replicas(client: Client, index: str, seconds: float) -> None:
    """Wait until replicas find what the primary shards found when it was called; where they copy segments.

    Of an index that is gone, or that the user may not ask about, nothing is known.

    Raises:
        HeadraceError: SINK_BUSY, where they do not within so many seconds.
    """
    if not client.product().copies_segments:
        return
    deadline = time.monotonic() + seconds
    target = path("_cat", "segment_replication", index, query={"format": "json", "h": "bytes_behind"})
    while (answer := client.read(target, allow=(403, 404))).ok:
        if all(one["bytes_behind"] == "0b" for one in answer.json()):
            return
        if time.monotonic() > deadline:
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"replicas of the index {index} do not find yet what its primary shards find",
                "Look at _cat/segment_replication, or ask with a longer timeout.",
            )
        time.sleep(_POLL_SECONDS)


def _hits(client: Client, index: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    opening = path(index, "_search", query={"scroll": _KEEP_ALIVE, **client.primaries()})
    page = _whole(client.read(opening, {**body, "sort": ["_doc"]}), index)
    try:
        while page["hits"]["hits"]:
            yield from page["hits"]["hits"]
            # Not repeated: a lost page would be skipped by the next request.
            following = {"scroll": _KEEP_ALIVE, "scroll_id": page["_scroll_id"]}
            page = _whole(client.call("POST", path("_search", "scroll"), following), index)
    finally:
        with suppress(HeadraceError):  # the server forgets it by itself
            client.call("DELETE", path("_search", "scroll"), {"scroll_id": page["_scroll_id"]}, allow=(404,))


def _whole(answer: Answer, index: str) -> dict[str, Any]:
    """The parsed answer, only if every shard took part: what a missing one holds would seem deleted."""
    page: dict[str, Any] = answer.json()
    shards = page["_shards"]
    if shards["failed"] or shards["successful"] < shards["total"]:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"{shards['total'] - shards['successful']} of {shards['total']} shards of the index {index} "
            f"at {answer.place} do not answer",
            "Look at the cluster's health.",
        )
    return page
