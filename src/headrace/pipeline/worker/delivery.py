"""What becomes of a document that the sink will never accept as it is, or that its rows make unreadable?

By its index's policy the run stops, goes on without it, or keeps an entry in the quarantine, which is durable
before anything counts as written. A document that is written leaves the quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from headrace.errors import HeadraceError, Kind
from headrace.model import DocumentOperation, Lsn
from headrace.pipeline.worker.plan import DocumentsPlan
from headrace.sinks.activity import tell_refusals
from headrace.sinks.base import DocumentWriter, Rejection, WriteResult
from headrace.sinks.opensearch import Client, Quarantine, Quarantined
from headrace.sinks.opensearch.bulk import MAX_ID_BYTES
from headrace.sinks.opensearch.documents import stored
from headrace.sinks.opensearch.quarantine import Held
from headrace.sinks.opensearch.routed import Shards


class Delivery:
    """Writes operations of one plan; used from one thread.

    Args:
        client, writer: of the sink; they stay the caller's.
        state: of the cluster that keeps the state, where that is another.
    """

    def __init__(
        self, client: Client, writer: DocumentWriter, plan: DocumentsPlan, *, state: Client | None = None
    ) -> None:
        self._client = client
        self._writer = writer
        self._plan = plan
        self._shards = Shards(client)
        self._quarantine = Quarantine(state or client, plan.slot, plan.prefix)

    def write(
        self, operations: Iterable[DocumentOperation], version: Lsn, unreadable: Sequence[Rejection] = ()
    ) -> WriteResult:
        """Write all; when it returns, each is durable, fenced, passed over or in quarantine.

        Args:
            operations: at most one for each document.
            version: of all of them.
            unreadable: documents without an operation; those are in it that were found while the operations
                were made.

        Raises:
            HeadraceError: SINK_REJECTED for a document of an index that stops at it; SINK_UNREACHABLE and
                SINK_BUSY, after which the operations are to be assembled anew.
        """
        if not self._plan.quarantine:
            result = self._writer.write(operations)
            result += WriteResult(rejected=tuple(unreadable))
            self._stop_at(result)
            self._tell(result.rejected)
            return result
        held = self._quarantine.held()
        passed: dict[str, set[str]] = {}
        result = self._writer.write(_tracking(operations, held, passed))
        result += WriteResult(rejected=tuple(unreadable))
        self._stop_at(result)
        refused = [one for one in result.rejected if self._policy(one) is not None]
        self._keep(refused, version)
        self._tell(result.rejected)
        for one in result.rejected:
            passed.get(one.index, set()).discard(one.id)
        for index, ids in passed.items():
            if ids:
                self._quarantine.drop(index, ids)
        return result

    def _stop_at(self, result: WriteResult) -> None:
        refused = [one for one in result.rejected if self._plan.stops_at(one.index)]
        if refused:
            first = refused[0]
            what = f"{len(refused)} documents are refused, the first is {first.id!r} of index {first.index}"
            raise HeadraceError(
                Kind.SINK_REJECTED,
                f"{what}: {first.public or first.reason}",
                'Correct the row or the schema, or set on_error = "skip" or "quarantine" for this index.',
                f"{what}: {first.reason}",
            )

    def _keep(self, refused: list[Rejection], version: Lsn) -> None:
        """Keep entries, and delete what is older, where that is wanted; what is newer needs neither."""
        current = [one for one in refused if not self._is_newer(one, version)]
        self._quarantine.put([self._entry(one, version) for one in current])
        gone = [one for one in current if self._policy(one) == "delete"]
        if gone:
            self._writer.write(DocumentOperation(one.index, one.id, version, None) for one in gone)

    def _tell(self, rejected: Sequence[Rejection]) -> None:
        """Say which documents the run goes on without, and why, without the values that the reason quotes."""
        lines = []
        for one in rejected:
            what = "left out" if self._policy(one) is None else "in quarantine"
            name = one.id if one.id.isprintable() else json.dumps(one.id)
            lines.append(f"{self._plan.index_of(one.index)} {name}: {what}: {one.public or one.reason}")
        tell_refusals(self._plan.writer.report, lines)

    def _policy(self, one: Rejection) -> str | None:
        """What becomes of the index's older version; None where its documents are not kept in quarantine."""
        return self._plan.quarantine.get(self._plan.index_of(one.index))

    def _entry(self, one: Rejection, version: Lsn) -> Quarantined:
        return Quarantined.now(self._plan.index_of(one.index), one.id, one.reason, version, one.index)

    def _is_newer(self, one: Rejection, version: Lsn) -> bool:
        """Whether the index holds the document as it became later: a seeding is behind the stream."""
        if self._plan.is_plain or not 0 < len(one.id.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES:
            return False
        target = self._plan.targets[one.index]
        routings = self._shards.of(target) if one.index in self._plan.routed else ()
        found = stored(self._client, target, [one.id], routings).get(one.id)
        return found is not None and found.version > version


def _tracking(
    operations: Iterable[DocumentOperation], held: Held, passed: dict[str, set[str]]
) -> Iterator[DocumentOperation]:
    """The same operations; those of held documents are noted in `passed`."""
    for one in operations:
        if one.id in held.get(one.index, ()):
            passed.setdefault(one.index, set()).add(one.id)
        yield one
