"""Store a small document in the meta index, safe from a second writer and from lost answers.

Every write names the version that was read before, so a second writer is noticed and never overwritten. A
write whose answer is lost may have happened, not happened, or happen later. So the next write reads first,
and once more where the lost write came in between. Writes are numbered: an earlier write of ours that is
stored again means that the cluster was restored from a snapshot, and that later writes are lost.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.system_index import create_system_index

_PROPERTIES = {"updated_at": {"type": "date"}, "writer": {"type": "keyword"}}


def meta_index(prefix: str) -> str:
    """Return the name of the hidden index with the state of all pipelines under one prefix."""
    return f"{prefix}headrace_meta"


@dataclass(frozen=True, slots=True)
class _Seen:
    """Sequence number and primary term of the document, as last seen."""

    seq_no: int
    primary_term: int

    def query(self) -> dict[str, str | int]:
        return {"if_seq_no": self.seq_no, "if_primary_term": self.primary_term}


class StateDocument:
    """One document; used from one thread. Call `load` first.

    Args:
        client: of the cluster.
        index: the meta index.
        identity: the document's id.
        what: names the document in messages: "the state of slot s".
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

    def look(self) -> None:
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
            create_system_index(self._client, self._index, _PROPERTIES)
        condition = {"op_type": "create"} if self._seen is None else self._seen.query()
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
            f"{self._what} is gone from the index {self._index}: somebody deleted it, or the cluster lost it",
            BACKFILL_AGAIN,
        )

    def _restored(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"{self._what} in the index {self._index} is an earlier one again: the cluster was restored from "
            "a snapshot, and what was written since is lost",
            "Start `headrace run` again: it goes on where the log still has all of that, and says where not.",
        )

    def _conflict(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"another process changed {self._what} in the index {self._index}",
            "Let only one Headrace run with this slot, then start again.",
        )


def _seen(found: dict[str, Any] | None) -> _Seen | None:
    return None if found is None else _Seen(found["_seq_no"], found["_primary_term"])


def build_notes(client: Client, slot: str, prefix: str, generation: str) -> StateDocument:
    """Return the document with the progress of a generation's backfill."""
    return StateDocument(
        client, meta_index(prefix), f"{slot}.build.{generation}", f"the progress of {generation}"
    )
