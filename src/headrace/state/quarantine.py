"""Store the documents that the cluster refused, with reason and time.

Each has an entry in the hidden index `{prefix}headrace_quarantine`, durable before the position moves past
the change that caused it. A mark document of the pipeline changes with each new entry: a writer of documents
reads it first, and so knows whether an entry may have to be removed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import document, documents
from headrace.state.key import StateKey
from headrace.state.system_index import SystemIndex, up_to

_PROPERTIES = {
    "slot": {"type": "keyword"},
    "index": {"type": "keyword"},
    "generation": {"type": "keyword"},
    "at": {"type": "date"},
}

# No version of the mark: the entries have to be read.
_NOT_READ = object()

# Ids of quarantined documents, by generation.
QuarantinedIds = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One refused document.

    Attributes:
        index: the logical index.
        id: the document's; possibly one that OpenSearch does not accept.
        reason: why it was refused.
        position: its version, a log position (bytes).
        at: time of the refusal, ISO 8601 in UTC.
        generation: the concrete index that refused it.
    """

    index: str
    id: str
    reason: str
    position: Lsn
    at: str
    generation: str

    @classmethod
    def now(cls, index: str, id_: str, reason: str, position: Lsn, generation: str) -> Quarantined:
        """Create an entry with the current time."""
        at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return cls(index, id_, reason, position, at, generation)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values; its position as PostgreSQL writes it."""
        return {**asdict(self), "position": format_lsn(self.position)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Quarantined:
        """Return the entry that `to_json` has written, perhaps with more beside it."""
        known = {field.name: data[field.name] for field in fields(cls)}
        return cls(**{**known, "position": parse_lsn(data["position"])})


class Quarantine:
    """The refused documents of one pipeline; used from one thread."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._owner = key.id
        self.index = f"{key.prefix}headrace_quarantine"
        self._entries = SystemIndex(client, self.index, _PROPERTIES)
        self._mark = path(self.index, "_doc", f"{key.id}.mark")
        self._mark_version: object = _NOT_READ
        self._ids: dict[str, set[str]] = {}

    def put(self, entries: Sequence[Quarantined]) -> None:
        """Store entries; durable when it returns. A document has one entry: that of the latest position.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, after which it may be called again.
        """
        if not entries:
            return
        self._entries.ensure()
        self._entries.write(
            (
                "index",
                up_to(entry.position, self._identity(entry.generation, entry.id)),
                {**entry.to_json(), "slot": self._owner},
            )
            for entry in entries
        )
        # After the entries: who sees the new mark finds them.
        self._client.call("PUT", self._mark, {"at": entries[-1].at})

    def drop(self, generation: str, positions: Mapping[str, Lsn]) -> None:
        """Delete the entries of documents (by id) up to a position (bytes); one of a later refusal stays."""
        # A delete with a version would create the index.
        if not positions or not self._entries.refresh():
            return
        stayed = self._entries.write(
            ("delete", up_to(position, self._identity(generation, id_)), None)
            for id_, position in positions.items()
        )
        self._ids.get(generation, set()).difference_update(positions)
        if stayed:
            self._mark_version = _NOT_READ  # which of them is read when it is asked for

    def ids(self) -> QuarantinedIds:
        """Return the ids that have an entry; reads them from the cluster only after a change."""
        # The mark before the entries: one that is put in between is read again next time.
        answer = self._client.read(self._mark, allow=(404,))
        version = answer.json().get("_seq_no") if answer.ok else None
        if version != self._mark_version:
            # Read again, and not added to: an operator may have dropped entries.
            self._ids = {}
            for entry in self.entries():
                self._ids.setdefault(entry.generation, set()).add(entry.id)
            self._mark_version = version
        return self._ids

    def entries(self, index: str | None = None, id_: str | None = None) -> list[Quarantined]:
        """Read all entries, or those of an index or a document, oldest first."""
        if not self._entries.refresh():
            return []
        held = documents(self._client, self.index)
        found = [Quarantined.from_json(source) for _, source in held if self._is_ours(source)]
        wanted = (entry for entry in found if index in (None, entry.index) and id_ in (None, entry.id))
        return sorted(wanted, key=lambda entry: (entry.at, entry.index, entry.id))

    def get(self, generation: str, id_: str) -> Quarantined | None:
        """Read the entry of one document; None where it has none."""
        found = document(self._client, self.index, self._identity(generation, id_))
        return None if found is None else Quarantined.from_json(found)

    def counts(self) -> dict[str, int]:
        """Count the entries by index."""
        return self._entries.count_by("index", {"term": {"slot": self._owner}})

    def count_by_generation(self) -> dict[str, int]:
        """Count the entries by the generation that refused the document."""
        owned = {"term": {"slot": self._owner}}
        return self._entries.count_by("generation", owned) if self._entries.refresh() else {}

    def forget(self, generation: str | None = None) -> None:
        """Delete all entries of the pipeline, or those of a generation."""
        found: dict[str, dict[str, Lsn]] = {}
        for entry in self.entries():
            if generation in (None, entry.generation):
                found.setdefault(entry.generation, {})[entry.id] = entry.position
        for name, positions in found.items():
            self.drop(name, positions)
        if generation is None:
            self._client.call("DELETE", self._mark, allow=(404,))

    def _identity(self, generation: str, id_: str) -> str:
        """Return the entry's id, for any document id, also an empty or too long one."""
        parts = (self._owner, generation, id_)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _is_ours(self, source: Mapping[str, Any]) -> bool:
        return source.get("slot") == self._owner
