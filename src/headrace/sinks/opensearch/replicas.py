"""Replicas that copy segments: they find a document later than the primary shards do."""

from __future__ import annotations

import time
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import refresh_if_exists

_SETTING = "index.replication.type"
_POLL_SECONDS = 0.02
_REFRESH_SECONDS = 1.0


def replication_type(client: Client, index: str) -> str:
    """Return `DOCUMENT` or `SEGMENT`; `DOCUMENT` for a missing index and where the user may not ask.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED.
    """
    query = {"include_defaults": "true", "flat_settings": "true"}
    answer = client.read(path(index, "_settings", query=query), allow=(403, 404))
    found = answer.json().values() if answer.ok else ()
    # An alias may lead to several indexes.
    types = [
        about.get("settings", {}).get(_SETTING) or about.get("defaults", {}).get(_SETTING) for about in found
    ]
    return "SEGMENT" if "SEGMENT" in types else "DOCUMENT"


def await_replicas(client: Client, index: str, seconds: float) -> None:
    """Wait until replicas with segment replication have what the primary shards have.

    Does nothing without segment replication, for a missing index, and where the user may not query it.
    What the cluster itself says of their lag (`_cat/segment_replication`, `_stats`) is 0 also for a replica
    that has not heard of a refresh yet; so the segments are compared. A replica may also be ahead of what its
    primary searches: a read of a new document by its id publishes it to replicas alone. So the index is
    refreshed again each second, which nobody else may do.

    Raises:
        HeadraceError: SINK_BUSY, where they do not within `seconds`.
    """
    if not client.product().copies_segments or replication_type(client, index) != "SEGMENT":
        return
    began = refreshed = time.monotonic()
    target = path(index, "_segments", query={"filter_path": "_shards.failed,indices.*.shards"})
    while (answer := client.read(target, allow=(403, 404))).ok:
        if _are_same(answer.json()):
            return
        now = time.monotonic()
        if now - began > seconds:
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"replicas of the index {index} do not find yet what its primary shards find",
                "Look at _cat/segment_replication, or ask with a longer timeout.",
            )
        if now - refreshed > _REFRESH_SECONDS:
            refresh_if_exists(client, index)
            refreshed = now
        time.sleep(_POLL_SECONDS)


def _are_same(answer: dict[str, Any]) -> bool:
    """Return whether all copies of each shard search the same segments."""
    return not answer["_shards"]["failed"] and all(
        _searched(copy) == _searched(copies[0])
        for index in answer.get("indices", {}).values()
        for copies in index["shards"].values()
        for copy in copies
    )


def _searched(copy: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the searched segments of a copy of a shard: how many documents each has, and has lost."""
    return {
        name: (segment["num_docs"], segment["deleted_docs"])
        for name, segment in copy.get("segments", {}).items()
        if segment["search"]
    }
