"""Read the documents of an index: all of them by scroll, or some by id.

A scroll in `_doc` order is one consistent view, needs no sort, and is the same on every version of
OpenSearch. It does not see what is not refreshed: call `refresh` first. Primary shards are queried: with
segment replication, only they have everything at that time.

A read by id returns documents as they are now, refreshed or not. `_source` is byte for byte what was sent.
Where a column decides on which shard a document lies, every shard is queried for every id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.units import quantity
from headrace.sinks.opensearch.bulk import invalid_id
from headrace.sinks.opensearch.client import Answer, Client, join_names, path

_KEEP_ALIVE = "10m"
_SOURCE = re.compile(r'"_source":[ \t\r\n]*')


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document: its external version, and its bytes as they were sent.

    The bytes are empty where two copies of the document exist, which must not happen.
    """

    version: int
    source: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a document, with the routing value that leads to its shard."""

    id: str
    routing: str
    version: int


def ids(client: Client, index: str, *, size: int = 10_000) -> Iterator[str]:
    """Iterate over the ids of all documents, in arbitrary order."""
    for hit in _hits(client, index, {"size": size, "_source": False}):
        yield hit["_id"]


def documents(client: Client, index: str, *, size: int = 1_000) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the ids and contents of all documents."""
    for hit in _hits(client, index, {"size": size}):
        yield hit["_id"], hit["_source"]


def document(client: Client, index: str, identity: str, routing: str | None = None) -> dict[str, Any] | None:
    """Read one document as it is now, refreshed or not; None where it does not exist."""
    query = client.primaries() | ({} if routing is None else {"routing": routing})
    answer = client.read(path(index, "_doc", identity, query=query), allow=(404,))
    found = answer.json()
    return found["_source"] if found.get("found") else None


def count(client: Client, index: str, query: dict[str, Any] | None = None) -> int:
    """Count the documents that a search finds: all, or those of `query`."""
    body = None if query is None else {"query": query}
    return int(whole(client.read(path(index, "_count", query=client.primaries()), body), index)["count"])


def refresh(client: Client, index: str) -> None:
    """Make everything that was written searchable, at least on the primary shards.

    Raises:
        HeadraceError: SINK_REJECTED, where there is no such index; else as `refresh_if_exists`.
    """
    _check_refreshed(client.repeat("POST", path(index, "_refresh")), index)


def refresh_if_exists(client: Client, index: str) -> bool:
    """Make everything that was written searchable; return whether the index exists.

    Raises:
        HeadraceError: SINK_UNREACHABLE; SINK_BUSY, also where a shard fails to refresh: a search would not
            find what was written to it.
    """
    answer = client.call("POST", path(index, "_refresh"), allow=(404,))
    if answer.ok:
        _check_refreshed(answer, index)
    return answer.ok


def _check_refreshed(answer: Answer, index: str) -> None:
    if failed := answer.json()["_shards"]["failed"]:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"{quantity(failed, 'shard')} of the index {index} at {answer.place} failed to refresh",
            "Look at the cluster's health.",
        )


def whole(answer: Answer, index: str) -> dict[str, Any]:
    """Parse the answer to a search, but only if every shard took part: what is missing would seem gone.

    Raises:
        HeadraceError: SINK_BUSY.
    """
    page: dict[str, Any] = answer.json()
    shards = page["_shards"]
    # A cluster's own time limit of searches ends one without an error.
    if page.get("timed_out"):
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"a search of the index {index} at {answer.place} ended early: its time was over",
            "Look at the cluster's load, and at its search.default_search_timeout.",
        )
    if shards["failed"] or shards["successful"] < shards["total"]:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"{shards['total'] - shards['successful']} of {shards['total']} shards of the index {index} "
            f"at {answer.place} do not answer",
            "Look at the cluster's health.",
        )
    return page


def copies(client: Client, index: str, ids: Iterable[str], routings: Sequence[str]) -> list[Copy]:
    """Find all copies of documents, without their bytes.

    Args:
        routings: one value for each shard.

    Raises:
        HeadraceError: as `read_documents`.
    """
    requested = [(id_, routing) for id_ in _possible(ids) for routing in routings]
    if not requested:
        return []
    docs = [{"_id": id_, "routing": routing, "_source": False} for id_, routing in requested]
    query = {"filter_path": "docs._id,docs._version,docs.found,docs.error", **client.primaries()}
    answer = client.read(path(index, "_mget", query=query), {"docs": docs})
    found = []
    for (identity, routing), entry in zip(requested, answer.json().get("docs", ()), strict=True):
        if "error" in entry:
            # An error of one shard must not be taken for a document that does not exist.
            raise _unreadable(answer.place, identity, entry["error"])
        if entry.get("found"):
            found.append(Copy(identity, routing, entry["_version"]))
    return found


def read_documents(
    client: Client, index: str, ids: Sequence[str], routings: Sequence[str] = ()
) -> dict[str, StoredDocument]:
    """Read documents by id; ids without a document are left out.

    All of them are held in memory: the caller splits `ids` into chunks.

    Args:
        routings: one value for each shard, where the id does not decide on which shard a document lies.

    Raises:
        HeadraceError: SINK_UNREACHABLE; SINK_BUSY, also where a shard does not answer; SINK_REJECTED where
            the index does not exist.
    """
    if not (possible := _possible(ids)):
        return {}
    docs = [{"_id": id_, "routing": routing} for id_ in possible for routing in routings]
    body = {"docs": docs} if routings else {"ids": possible}
    answer = client.read(path(index, "_mget", query=client.primaries()), body)
    try:
        return _read_answer(answer)
    except (ValueError, KeyError) as error:
        raise HeadraceError(
            Kind.SINK_UNREACHABLE, f"the answer of OpenSearch at {answer.place} cannot be read: {error}"
        ) from error


def _possible(ids: Iterable[str]) -> list[str]:
    """Return the ids that a document can have: one other makes the cluster refuse the whole request."""
    return [id_ for id_ in ids if invalid_id(id_) is None]


def _hits(client: Client, index: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    opening = path(index, "_search", query={"scroll": _KEEP_ALIVE, **client.primaries()})
    page = whole(client.read(opening, {**body, "sort": ["_doc"]}), index)
    try:
        while page["hits"]["hits"]:
            yield from page["hits"]["hits"]
            # Not repeated: a lost page would be skipped by the next request.
            following = {"scroll": _KEEP_ALIVE, "scroll_id": page["_scroll_id"]}
            page = whole(client.call("POST", path("_search", "scroll"), following), index)
    finally:
        with suppress(HeadraceError):  # the server forgets it by itself
            client.call("DELETE", path("_search", "scroll"), {"scroll_id": page["_scroll_id"]}, allow=(404,))


def _read_answer(answer: Answer) -> dict[str, StoredDocument]:
    found: dict[str, StoredDocument] = {}
    for entry, source in entries(answer.data.decode()):
        if "error" in entry:
            raise _unreadable(answer.place, entry.get("_id"), entry["error"])
        if source is None:
            continue
        identity, stored = entry["_id"], StoredDocument(entry["_version"], source.encode())
        if (twice := found.get(identity)) is not None:
            stored = StoredDocument(max(stored.version, twice.version), b"")
        found[identity] = stored
    return found


def entries(text: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield each entry of an answer, and its document as the text that it is; None without a document.

    Raises:
        ValueError: the text is no JSON, or ends too early.
    """
    parts: list[str] = []
    sources: list[str] = []
    at = 0
    # A quote inside a string is escaped, and each document is passed over: what is found is an entry's key.
    while key := _SOURCE.search(text, at):
        _, end = _skip(text, key.end())
        parts += (text[at : key.end()], str(len(sources)))
        sources.append(text[key.end() : end])
        at = end
    parts.append(text[at:])
    for entry in json.loads("".join(parts)).get("docs", ()):
        yield entry, sources[entry["_source"]] if "_source" in entry else None


def _unreadable(place: str, identity: object, error: object) -> HeadraceError:
    return HeadraceError(
        Kind.SINK_BUSY,
        f"OpenSearch at {place} cannot read the document {identity!r}: {error}",
        "Look at the cluster's health.",
    )


def _number(_: str) -> None:
    """Ignore a number of any length."""


_skip = json.JSONDecoder(parse_int=_number, parse_float=_number).raw_decode


def index_sizes(client: Client, indexes: Sequence[str]) -> dict[str, tuple[int | None, int | None]]:
    """Return the searchable documents of each index, and its bytes without replicas.

    Nested objects are no documents. None where this user may not ask; an index that is gone is left out.
    """
    sizes: dict[str, tuple[int | None, int | None]] = {}
    search = {"size": 0, "aggs": {"indexes": {"terms": {"field": "_index", "size": len(indexes)}}}}
    for joined in join_names(indexes):
        query: dict[str, str | int] = {"ignore_unavailable": "true"}
        found = client.read(path(joined, "_search", query=query), search, allow=(403, 404))
        # Where every index is gone, the answer has no aggregations.
        aggregations = found.json().get("aggregations") if found.ok else None
        buckets = aggregations["indexes"]["buckets"] if aggregations else []
        counts = {bucket["key"]: int(bucket["doc_count"]) for bucket in buckets}
        answer = client.read(path(joined, "_stats", "store", query=query), allow=(403, 404))
        stored = answer.json()["indices"] if answer.ok else {}
        for index in joined.split(","):
            about = stored.get(index)
            if about is None and answer.ok:
                continue
            bytes_ = None if about is None else int(about["primaries"]["store"]["size_in_bytes"])
            sizes[index] = (counts.get(index, 0) if found.ok else None, bytes_)
    return sizes
