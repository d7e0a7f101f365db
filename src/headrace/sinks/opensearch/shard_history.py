"""Are the documents of an index those that were written to it?

Each shard has a history, whose name is another one once documents came from elsewhere or were lost: after
a restore in place, which keeps the index's UUID, and after an empty or a stale copy was made the primary.
It stays over closing and opening, new starts, moves and failovers. All of it was measured on OpenSearch 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sinks.opensearch.client import Client, joined, path

_NOT_TOLD = (400, 403, 404)
_KEPT = "indices.*.uuid,indices.*.shards.*.routing.primary,indices.*.shards.*.commit.user_data.history_uuid"

History = tuple[str, ...]
"""The name of each shard's history, in the shards' order; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an index cannot keep when its documents become others."""

    uuid: str
    history: History = ()

    @property
    def is_known(self) -> bool:
        """Whether the history of every shard is."""
        return bool(self.history) and all(self.history)

    def is_another(self, found: Identity | None) -> bool:
        """Whether what is found now is not this index as it was; what is unknown is not compared."""
        return found is None or self.uuid != found.uuid or is_another(self.history, found.history)

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"index": self.uuid, "history": list(self.history)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Identity:
        """Read what `to_json` made; an older note has no history.

        Raises:
            KeyError: something else wrote it.
        """
        return cls(kept["index"], tuple(kept.get("history", ())))


def identities(client: Client, indexes: Iterable[str]) -> dict[str, Identity]:
    """What is known of indexes: nothing of one that is closed or gone, or that the user may not ask about.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
    """
    query = {"level": "shards", "ignore_unavailable": "true", "filter_path": _KEPT}
    found: dict[str, Identity] = {}
    for names in joined(sorted(indexes)):
        answer = client.read(path(names, "_stats", "docs", query=query), allow=_NOT_TOLD)
        told = answer.json().get("indices", {}) if answer.ok else {}
        for index, about in told.items():
            found[index] = Identity(about["uuid"], _history(about.get("shards", {})))
    return found


def is_another(noted: History, found: History) -> bool:
    """Whether a shard has another history than the one that was noted; what is unknown is not compared."""
    return any(before and now and before != now for before, now in zip(noted, found, strict=False))


def completed(noted: History, found: History) -> History:
    """What was noted, with what was not known of it."""
    if not noted:
        return found
    return tuple(before or now for before, now in zip(noted, found or noted, strict=False))


def _history(shards: Mapping[str, Any]) -> History:
    names = {int(number): _of_primary(copies) for number, copies in shards.items()}
    return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))


def _of_primary(copies: Iterable[Mapping[str, Any]]) -> str:
    for one in copies:
        if one["routing"]["primary"]:
            return str(one.get("commit", {}).get("user_data", {}).get("history_uuid", ""))
    return ""
