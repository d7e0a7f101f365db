"""Store what a pipeline notes about its secondary sinks, in the cluster that keeps the state."""

from __future__ import annotations

import datetime as dt

from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import document
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state.deferred_keys import DeferredKeys
from headrace.state.key import StateKey


class SecondarySinkNotes:
    """The deferred keys of one secondary sink, and why it is away; used from one thread.

    While the sink counts as away, a document of the meta index says so, and documents are deferred without
    trying the sink. Another one notes the identity of the index that holds the deferred keys, so that their
    loss is noticed. The primary needs no such note: the state of the pipeline says where its keys are.

    Args:
        client: of the cluster that keeps the state.
        key: names the sink.

    Attributes:
        key: names the sink.
        deferred: the deferred keys.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self.key = key
        self._client = client
        self._away = path(key.meta_index, "_doc", f"{key.id}.away")
        self._index = (key.meta_index, "_doc", f"{key.id}.deferred")
        self._noted: Identity | None = None
        self.deferred = DeferredKeys(client, key, self._note_index)

    def note_away(self, reason: str) -> None:
        """Note that the sink does not answer, so that documents are deferred without trying it."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._client.call("PUT", self._away, {"reason": reason, "updated_at": now})

    def why_away(self) -> str | None:
        """Return why the sink counts as away; None where it does not."""
        found = document(self._client, self.key.meta_index, f"{self.key.id}.away")
        return None if found is None else str(found["reason"])

    def note_available(self) -> None:
        """Note that the sink accepts documents again."""
        self._client.call("DELETE", self._away, allow=(404,))

    def has_lost_keys(self) -> bool:
        """Tell whether deferred keys were lost: their index was deleted, replaced or restored."""
        noted = self._read_noted()
        return noted is not None and noted.is_another(self.deferred.identity)

    def forget(self) -> None:
        """Delete all deferred keys and notes."""
        self.note_available()
        self._client.call("DELETE", path(*self._index), allow=(404,))
        self.deferred.forget()

    def _note_index(self, identity: Identity) -> None:
        """Note the index's identity before the first keys; a note of a former index stays."""
        # Once for each process and index: keys are stored with each batch that a sink does not take.
        if self._noted == identity:
            return
        target = path(*self._index, query={"op_type": "create"})
        if not self._client.call("PUT", target, identity.to_json(), allow=(409,)).ok:
            noted = self._read_noted()  # perhaps of a closed index, whose history is unknown
            if noted is not None and not noted.is_known and not noted.is_another(identity):
                self._client.call("PUT", path(*self._index), identity.to_json())
        self._noted = identity

    def _read_noted(self) -> Identity | None:
        found = document(self._client, self.key.meta_index, f"{self.key.id}.deferred")
        return None if found is None else Identity.from_json(found)
