"""Recognise whether an index still has the documents that were written to it.

Each shard has a history UUID. It changes when documents come from elsewhere or are lost: after a restore in
place, which keeps the index's UUID, and after an empty or stale copy became the primary. It stays the same
over close and open, restarts, moves and failovers. All of this was measured on OpenSearch 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sinks.opensearch.client import Client, join_names, path

_NOT_TOLD = (400, 403, 404)
_KEPT = "indices.*.uuid,indices.*.shards.*.routing.primary,indices.*.shards.*.commit.user_data.history_uuid"

History = tuple[str, ...]
"""The history UUID of each shard, in the shards' order; empty where unknown."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The UUID and shard histories of an index; at least one changes when its documents are replaced."""

    uuid: str
    history: History = ()

    @property
    def is_known(self) -> bool:
        """Tell whether the history of every shard is known."""
        return bool(self.history) and all(self.history)

    def is_another(self, found: Identity | None) -> bool:
        """Tell whether `found` is not this index as it was; unknown histories are not compared."""
        return found is None or self.uuid != found.uuid or is_another(self.history, found.history)

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON for storing."""
        return {"index": self.uuid, "history": list(self.history)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Identity:
        """Read the result of `to_json`; older notes have no history.

        Raises:
            KeyError: something else wrote it.
        """
        return cls(kept["index"], tuple(kept.get("history", ())))


def identities(client: Client, indexes: Iterable[str]) -> dict[str, Identity]:
    """Read the identities of indexes; closed, missing and unreadable ones are left out.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
    """
    query = {"level": "shards", "ignore_unavailable": "true", "filter_path": _KEPT}
    found: dict[str, Identity] = {}
    for names in join_names(sorted(indexes)):
        answer = client.read(path(names, "_stats", "docs", query=query), allow=_NOT_TOLD)
        indices = answer.json().get("indices", {}) if answer.ok else {}
        for index, about in indices.items():
            found[index] = Identity(about["uuid"], _history(about.get("shards", {})))
    return found


def is_another(noted: History, found: History) -> bool:
    """Tell whether a shard's history differs from the noted one; unknown ones are not compared."""
    return any(before and now and before != now for before, now in zip(noted, found, strict=False))


def _history(shards: Mapping[str, Any]) -> History:
    names = {int(number): _primary_history(copies) for number, copies in shards.items()}
    return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))


def _primary_history(copies: Iterable[Mapping[str, Any]]) -> str:
    for copy in copies:
        if copy["routing"]["primary"]:
            return str(copy.get("commit", {}).get("user_data", {}).get("history_uuid", ""))
    return ""
