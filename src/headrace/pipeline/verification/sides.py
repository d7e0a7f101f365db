"""What do the database and the index say of some ids? Both sides of a comparison, and what is between."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

from headrace.assembly import Assembler
from headrace.assembly.digests import Presence, Present
from headrace.catalog import Catalog
from headrace.model import DocumentOperation, Lsn
from headrace.pipeline.applied_position import AppliedPosition, why_behind
from headrace.pipeline.verification.recheck import Look
from headrace.postgres.position import end_of_commits
from headrace.postgres.session import ReadSession
from headrace.schema import IndexSpec
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import Stored, stored
from headrace.sinks.opensearch.routed import Shards

_LOOK_SECONDS = 5.0
_STUCK_SECONDS = 60.0


class DatabaseDocuments:
    """What the documents of one index should be; used from one thread."""

    def __init__(self, session: ReadSession, spec: IndexSpec, catalog: Catalog) -> None:
        self._session = session
        self._presence = Presence(session, spec, catalog)
        self._assembler = Assembler(session, spec, catalog)

    def look(self, ids: Sequence[str]) -> Look:
        """See `DatabaseSide`; an id that no row can have is no document.

        Raises:
            HeadraceError: CONNECTION, DATABASE, TRANSFORM.
        """
        present, unreadable = self._presence.read(ids), dict[str, str]()
        made = self._assembled(present, 0, unreadable)
        wanted = set(ids)
        documents = {one.id: one.body for one in made if one.id in wanted}
        return Look(present.stamps, documents, unreadable)

    def operations(
        self, index: str, ids: Sequence[str], version: Lsn, refused: dict[str, str]
    ) -> list[DocumentOperation]:
        """What makes the documents of `ids` what they should be; `refused` gets what cannot be, and why."""
        present = self._presence.read(ids)
        made = {
            one.id: dataclasses.replace(one, index=index)
            for one in self._assembled(present, version, refused)
        }
        self._session.await_flush()  # also where a row seems to be gone
        return [
            made.get(one, DocumentOperation(index, one, version, None)) for one in ids if one not in refused
        ]

    def _assembled(
        self, present: Present, version: Lsn, unreadable: dict[str, str]
    ) -> Iterator[DocumentOperation]:
        def refuse(_: str, id_: str, reason: str) -> None:
            unreadable[id_] = reason

        return self._assembler.assemble(list(dict.fromkeys(present.keys.values())), version, refuse)

    def stamps(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See `DatabaseSide`."""
        return self._presence.read(ids).stamps

    def position(self) -> Lsn:
        """See `DatabaseSide`."""
        return end_of_commits(self._session.query)

    def await_replay(self, lsn: Lsn) -> None:
        """Return once what is read includes everything before `lsn`, which is applied."""
        self._session.await_replay(lsn)


class IndexDocuments:
    """What one generation holds."""

    def __init__(self, client: Client, index: str, *, routed: bool = False) -> None:
        self._client = client
        self._index = index
        self._routings = Shards(client).of(index) if routed else ()

    def read(self, ids: Sequence[str]) -> Mapping[str, Stored]:
        """See `IndexSide`."""
        return stored(self._client, self._index, ids, self._routings)


class StreamProgress:
    """Whether the run beside follows.

    Attributes:
        why: why it does not get to where it should; None as long as it does. Once it is known nobody waits
            for it any more.
    """

    def __init__(self, applied: AppliedPosition) -> None:
        self._applied = applied
        self.why: str | None = None

    def reached(self, lsn: Lsn) -> bool:
        """Whether everything before `lsn` is applied; waits as long as the pipeline gets on."""
        last, since = self._applied.progress(), time.monotonic()
        while not self._applied.covers(state := self._applied.state(), lsn):
            if self.why is not None:
                return False
            if self._applied.wait(lsn, _LOOK_SECONDS) is not None:
                return True
            now, slot = self._applied.progress(), self._applied.slot()
            if now != last:
                last, since = now, time.monotonic()
            if away := self._applied.away():
                self.why = away
            elif slot is None or slot.reader is None or time.monotonic() - since > _STUCK_SECONDS:
                self.why, _ = why_behind(self._applied, state, lsn)
        return True
