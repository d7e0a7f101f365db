"""Note how the last verification of each index ended, so that a run can show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.sinks.opensearch.client import Client, path
from headrace.state.key import StateKey
from headrace.state.system_index import entries_by_id


@dataclass(frozen=True, slots=True)
class Verification:
    """The last verification of an index.

    Attributes:
        text: when it ended, and its result in a few words.
        drift: documents that are wrong after it.
    """

    text: str
    drift: int


class Verifications:
    """The results of the last verifications of one pipeline's indexes, in the meta index."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key

    def note(self, index: str, result: str, drift: int) -> None:
        """Note the result of a verification that ends now, and how many documents are wrong after it.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"at": at, "result": result, "drift": drift}
        self._client.call("PUT", path(self._key.meta_index, "_doc", self._id(index)), note)

    def results(self, indexes: Iterable[str]) -> dict[str, Verification]:
        """Return the last verification of those indexes that have one."""
        names = {self._id(index): index for index in indexes}
        return {
            names[document["_id"]]: _verification(document["_source"])
            for document in entries_by_id(self._client, self._key.meta_index, [*names])
        }

    def forget(self, index: str) -> None:
        """Delete the result of an index."""
        self._client.call("DELETE", path(self._key.meta_index, "_doc", self._id(index)), allow=(404,))

    def _id(self, index: str) -> str:
        return f"{self._key.id}.verified.{index}"


def _verification(source: Mapping[str, Any]) -> Verification:
    minute = datetime.fromisoformat(source["at"]).strftime("%Y-%m-%d %H:%M")
    return Verification(f"{minute}: {source['result']}", source["drift"])
