"""Store what belongs to a pipeline in hidden indexes of the cluster.

The meta index holds a few small documents of each pipeline (`StateDocument`). Entries that are too many for
it have an index of their own (`SystemIndex`).
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model.chunks import chunked
from headrace.sinks.opensearch import failures
from headrace.sinks.opensearch.bulk import VERSION_CONFLICT
from headrace.sinks.opensearch.client import Answer, Client, path
from headrace.sinks.opensearch.documents import count as counted
from headrace.sinks.opensearch.documents import refresh_if_exists, whole
from headrace.sinks.opensearch.settings import TEMPLATE_OVERRIDES
from headrace.sinks.opensearch.shard_history import Identity, identities
from headrace.state.key import StateKey

# `index` or `delete`, its parameters without the index, and the stored entry.
Action = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]

_REQUEST_BYTES = 512 << 10  # proxies often refuse more than 1 MiB
_NDJSON = "application/x-ndjson"
_ERRORS = "errors,items.*.status,items.*.error"
_SUCCESS = range(200, 300)
_NO_ENTRY = 404
_GONE = {"type": "index_not_found_exception"}

_META_PROPERTIES = {"updated_at": {"type": "date"}, "writer": {"type": "keyword"}}


def system_index_body(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Build the body of a hidden index; only `properties` are searchable."""
    return {
        "settings": {
            "index": {
                "number_of_shards": 1,
                "auto_expand_replicas": "0-1",
                "hidden": True,
                # Entries are replaced several times a second, and what was replaced is kept up to a flush.
                # OpenSearch makes one after 512 MB: the index would grow for a day.
                "translog.flush_threshold_size": "4mb",
                **TEMPLATE_OVERRIDES,
            }
        },
        "mappings": {"dynamic": False, "properties": properties},
    }


def create_system_index(client: Client, name: str, properties: Mapping[str, Any]) -> Answer:
    """Create a hidden index; the answer's status is 400 where it exists already, or cannot be created.

    Replication is by document, so that every copy finds each entry at once. A cluster may insist on segment
    replication; then only primary shards are searched, as in all searches.
    """
    body = client.product().adapt(system_index_body(properties))
    if client.product().copies_segments:
        with_replication = {
            **body,
            "settings": {"index": {**body["settings"]["index"], "replication.type": "DOCUMENT"}},
        }
        answer = client.call("PUT", path(name), with_replication, allow=(400,))
        if answer.ok or b"replication" not in answer.data:
            return answer
    return client.call("PUT", path(name), body, allow=(400,))


def create_meta_index(client: Client, name: str) -> None:
    """Create the meta index, if it does not exist."""
    create_system_index(client, name, _META_PROPERTIES)


def entries_by_id(client: Client, index: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Read the entries with these ids, with their metadata; those that do not exist are left out.

    Raises:
        HeadraceError: SINK_UNREACHABLE; SINK_BUSY, also where a shard does not answer.
    """
    if not ids:
        return []
    answer = client.read(path(index, "_mget"), {"ids": ids}, allow=(404,))
    entries: list[dict[str, Any]] = answer.json("docs") if answer.ok else []
    for entry in entries:
        # An entry that cannot be read now is not one that is not there.
        if entry.get("error", _GONE)["type"] != _GONE["type"]:
            raise HeadraceError(
                Kind.SINK_BUSY,
                f"the index {index} at {answer.place} cannot be read: {failures.describe(entry['error'])}",
                "Look at the cluster's health.",
            )
    return [entry for entry in entries if entry.get("found")]


def up_to(version: int, identity: str) -> dict[str, Any]:
    """Return the parameters of an action that leaves an entry of a later version alone."""
    # `gte`: a task that is repeated stores the same entry again, at the same version.
    return {"_id": identity, "version": version, "version_type": "external_gte"}


class SystemIndex:
    """One hidden index for entries; used from one thread.

    It is created by its first entry and refreshed before it is searched. What is written is durable when the
    call returns.

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

    def ensure(self) -> Identity:
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
                f"the index {self.name} at {answer.place} cannot be created yet: {why}",
                "Look at the cluster's limit of shards and at its health.",
            )
        return identity

    def refresh(self) -> bool:
        """Refresh the index; return whether it exists."""
        return refresh_if_exists(self._client, self.name)

    def count(self, query: dict[str, Any]) -> int:
        """Count the entries that match a query; 0 without an index."""
        return counted(self._client, self.name, query) if self.refresh() else 0

    def count_by(self, field: str, query: dict[str, Any]) -> dict[str, int]:
        """Count the entries that match a query by the value of a field; nothing without an index."""
        # More groups than there are indexes: what goes beyond `size` is left out without a word.
        groups = {"terms": {"field": field, "size": 10_000}}
        target = path(self.name, "_search", query=self._client.primaries())
        search = {"size": 0, "query": query, "aggs": {"groups": groups}}
        answer = self._client.read(target, search, allow=(404,))
        found = whole(answer, self.name)["aggregations"]["groups"]["buckets"] if answer.ok else ()
        return {group["key"]: group["doc_count"] for group in found}

    def oldest(
        self, query: Mapping[str, Any], most: int, fields: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Search entries by ascending `version`, with all of their fields or some."""
        if not self.refresh():
            return []
        search = {"size": most, "query": query, "sort": [{"version": "asc"}]}
        if fields is not None:
            search["_source"] = fields
        target = path(self.name, "_search", query=self._client.primaries())
        found: list[dict[str, Any]] = whole(self._client.read(target, search), self.name)["hits"]["hits"]
        return found

    def write(self, actions: Iterable[Action]) -> int:
        """Carry out the actions; return how many a newer version has fenced.

        These, and a delete of a missing entry, count as done.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be done; it may be called again.
        """
        entries = (self._encode(*action) for action in actions)
        return sum(map(self._send, chunked(entries, len, lambda: _REQUEST_BYTES)))

    def _encode(self, what: str, parameters: Mapping[str, Any], entry: Mapping[str, Any] | None) -> bytes:
        head = {what: {"_index": self.name, **parameters}}
        return b"".join(f"{json.dumps(line)}\n".encode() for line in (head, entry) if line is not None)

    def _send(self, lines: Sequence[bytes]) -> int:
        body = b"".join(lines)
        target = path("_bulk", query={"timeout": self._client.server_timeout, "filter_path": _ERRORS})
        answer = self._client.exchange("POST", target, body, _NDJSON)
        if not answer.ok:
            raise self._client.failure(answer)
        fenced = 0
        for item in answer.json("items"):
            [(what, result)] = item.items()
            fenced += _is_fenced(result)
            if not _is_done(what, result):
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"the index {self.name} at {answer.place} does not take an entry: "
                    f"{failures.describe_without_request(result.get('error'))}",
                    "Look at the cluster's health and its disk watermarks.",
                )
        return fenced


def _is_done(what: str, result: Mapping[str, Any]) -> bool:
    status, error = result["status"], result.get("error")
    if status == _NO_ENTRY:
        return what == "delete" and (error is None or error.get("type") == _GONE["type"])
    # One that is fenced is done: what is there is newer than what it would say.
    return status in _SUCCESS or _is_fenced(result)


def _is_fenced(result: Mapping[str, Any]) -> bool:
    return bool((result.get("error") or {}).get("type") == VERSION_CONFLICT)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Sequence number and primary term of the document, as last seen."""

    seq_no: int
    primary_term: int

    def query(self) -> dict[str, str | int]:
        return {"if_seq_no": self.seq_no, "if_primary_term": self.primary_term}


class StateDocument:
    """A small document of the meta index, safe from a second writer and from lost answers.

    Every write names the version that was read before, so a second writer is noticed and never overwritten. A
    write whose answer is lost may have happened, not happened, or happen later. So the next write reads
    first, and once more where the lost write came in between. Writes are numbered: an earlier write of ours
    that is stored again means that the cluster was restored from a snapshot, and that later writes are lost.

    Used from one thread. Call `load` first.

    Args:
        client: of the cluster.
        index: the meta index.
        identity: the document's id.
        what: names the document in messages: "the state of the slot 's'".
    """

    def __init__(self, client: Client, index: str, identity: str, what: str) -> None:
        self._client = client
        self._index = index
        self._document = (index, "_doc", identity)
        self._what = what
        self._writer = uuid.uuid4().hex
        self._writes = self._acknowledged = 0
        self._seen: _Seen | None = None
        self._unsure = True

    def load(self) -> Mapping[str, Any] | None:
        """Read what was saved last, by any process; None where nothing was.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        found = self._get()
        self._seen, self._unsure = _seen(found), False
        return None if found is None else found["_source"]

    def check_unchanged(self) -> None:
        """Check that the stored document is the one that was loaded or saved last.

        Does nothing where that is unknown.

        Raises:
            HeadraceError: CONTINUITY, where it is another; SINK_UNREACHABLE, SINK_BUSY.
        """
        if not self._unsure:
            self._find_out()

    def save(self, body: Mapping[str, Any]) -> None:
        """Write `body` whole; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote since; SINK_UNREACHABLE and SINK_BUSY,
                after which the next `save` finds out what became of this one.
        """
        # Until the answer is there: whatever ends this call leaves the next one to find out.
        unsure, self._unsure = self._unsure, True
        if unsure:
            self._find_out()
        while not self._put(body):  # an earlier write of this process arrived late
            before = self._seen
            self._find_out()
            if self._seen == before:
                raise self._conflict()
        self._unsure = False

    def delete(self) -> None:
        """Delete the document, whatever it contains."""
        self._client.call("DELETE", path(*self._document), allow=(404,))
        self._seen = None

    def _put(self, body: Mapping[str, Any]) -> bool:
        """Replace the document if it is the one seen last; tells whether it was."""
        now = dt.datetime.now(dt.UTC).isoformat()
        if self._seen is None:
            create_meta_index(self._client, self._index)
        condition = {"op_type": "create"} if self._seen is None else self._seen.query()
        # Before it is sent: a write whose answer is lost is known by its number when it turns up later.
        self._writes += 1
        document = {**body, "updated_at": now, "writer": self._writer, "write": self._writes}
        answer = self._client.call("PUT", path(*self._document, query=condition), document, allow=(409,))
        if answer.ok:
            saved = answer.json()
            self._seen = _Seen(saved["_seq_no"], saved["_primary_term"])
            self._acknowledged = self._writes
        return answer.ok

    def _find_out(self) -> None:
        """Accept the stored document after a lost answer, if it is what this process saw or wrote."""
        found = self._get()
        if _seen(found) == self._seen:
            return
        if found is None:
            raise self._deleted()
        if found["_source"].get("writer") != self._writer:
            raise self._conflict()
        if found["_source"].get("write", 0) <= self._acknowledged:
            raise self._restored()
        self._seen, self._acknowledged = _seen(found), found["_source"]["write"]

    def _get(self) -> dict[str, Any] | None:
        answer = self._client.read(path(*self._document), allow=(404,))
        return answer.json() if answer.ok else None

    def _deleted(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"{self._what} is gone from the index {self._index}: it was deleted, or the cluster lost it",
            BACKFILL_AGAIN,
        )

    def _restored(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"{self._what} in the index {self._index} is an earlier one again: the cluster was restored from "
            "a snapshot, and what was written since is lost",
            "A run goes on by itself where the log still has all of that, and else backfills again; start "
            "again what has ended.",
        )

    def _conflict(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"another process changed {self._what} in the index {self._index}",
            "Let only one Headrace run with this slot, then start again.",
        )


def _seen(found: dict[str, Any] | None) -> _Seen | None:
    return None if found is None else _Seen(found["_seq_no"], found["_primary_term"])


def backfill_progress(client: Client, key: StateKey, generation: str) -> StateDocument:
    """Return the document with the progress of a generation's backfill."""
    return StateDocument(
        client, key.meta_index, f"{key.id}.build.{generation}", f"the progress of {generation}"
    )
