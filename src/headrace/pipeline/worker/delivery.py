"""Connect to a sink, write operations to it, and apply the index's policy to documents that it refuses.

The same policy holds for documents whose rows cannot be read. The run stops, skips the document, or puts it
in quarantine; the entry is durable before the batch counts as written. A written document leaves the
quarantine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from headrace.errors import HeadraceError, Kind, as_locked, retrying
from headrace.model.changes import DocumentOperation, Key, keys_of_ids
from headrace.model.lsn import Lsn
from headrace.model.units import are, quantity
from headrace.pipeline.worker.failure_policy import SinkFailure, SinkFailureWriter
from headrace.pipeline.worker.plan import DocumentsPlan, Work
from headrace.sinks.activity import report_rejections
from headrace.sinks.base import DocumentWriter, Rejection, WriteResult
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import ids, read_documents, refresh, refresh_if_exists
from headrace.sinks.opensearch.refresh import EagerRefresh
from headrace.sinks.opensearch.routed import Shards, open_writer
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.sinks.plain import PlainWriter
from headrace.sinks.registry import open_sink
from headrace.sinks.stdout.relay import RelayWriter
from headrace.state import Quarantine, Quarantined
from headrace.state.quarantine import QuarantinedIds

_PROBE_SECONDS = 5.0


class Delivery:
    """Writes the operations of one plan; used from one thread.

    Args:
        client: client of the sink; the caller closes it.
        writer: writer to the sink; the caller closes it.
        plan: the plan, with the policies of its indexes.
        state: client of the cluster that keeps the state, where that is another.
    """

    def __init__(
        self, client: Client, writer: DocumentWriter, plan: DocumentsPlan, *, state: Client | None = None
    ) -> None:
        self._client = client
        self._writer = writer
        self._plan = plan
        self._shards = Shards(client)
        self._quarantine = Quarantine(state or client, plan.key)

    def write(
        self, operations: Iterable[DocumentOperation], version: Lsn, unreadable: Sequence[Rejection] = ()
    ) -> WriteResult:
        """Write all operations; on return each is durable, fenced, skipped or in quarantine.

        Args:
            operations: at most one for each document.
            version: the version of all operations.
            unreadable: documents without an operation; it may grow while `operations` is consumed.

        Raises:
            HeadraceError: SINK_REJECTED for a document of an index whose policy is to stop; SINK_UNREACHABLE
                and SINK_BUSY, after which the operations must be assembled again.
        """
        # One small read, where no entry has come or gone since the last batch.
        held = self._quarantine.ids() if self._plan.quarantine else {}
        passed: dict[str, set[str]] = {}
        result = self._writer.write(_note_quarantined(operations, held, passed))
        result += WriteResult(rejected=tuple(unreadable))
        self._raise_refused(result)
        refused = [rejection for rejection in result.rejected if self._policy(rejection) is not None]
        # Before the batch counts as written: then only the entry tells of the document.
        self._quarantine_documents(refused, version)
        self._report_refusals(result.rejected)
        for rejection in result.rejected:
            # Refused again: its entry must stay.
            passed.get(rejection.index, set()).discard(rejection.id)
        for index, written in passed.items():
            if written:
                self._quarantine.drop(index, dict.fromkeys(written, version))
        return result

    def has_quarantined(self) -> bool:
        """Whether any document of the deployment is in quarantine.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY.
        """
        return any(self._quarantine.ids().values())

    def _raise_refused(self, result: WriteResult) -> None:
        refused = [rejection for rejection in result.rejected if self._plan.stops_at(rejection.index)]
        if refused:
            first = refused[0]
            documents = f"{quantity(len(refused), 'document')} {are(len(refused))}"
            what = f"{documents} refused, the first is {first.id!r} of index {first.index}"
            raise HeadraceError(
                Kind.SINK_REJECTED,
                f"{what}: {first.public or first.reason}",
                'Correct the row or the schema, or set on_error = "quarantine" or "skip" for this index.',
                f"{what}: {first.reason}",
            ).concerning(units={self._plan.unit_of(rejection.index) for rejection in refused})

    def _quarantine_documents(self, refused: list[Rejection], version: Lsn) -> None:
        """Quarantine refused documents, and delete older indexed versions where that is the policy."""
        current = [rejection for rejection in refused if not self._is_newer(rejection, version)]
        self._quarantine.put([self._entry(rejection, version) for rejection in current])
        # At the refused version: the delete wins over all that is older, and the next change over it.
        outdated = [rejection for rejection in current if self._policy(rejection) == "delete"]
        if outdated:
            self._writer.write(
                DocumentOperation(rejection.index, rejection.id, version, None) for rejection in outdated
            )

    def _report_refusals(self, rejected: Sequence[Rejection]) -> None:
        """Report the documents that the run goes on without; reasons quote no values."""
        lines = []
        for rejection in rejected:
            what = "left out" if self._policy(rejection) is None else "in quarantine"
            name = rejection.id if rejection.id.isprintable() else json.dumps(rejection.id)
            lines.append(
                f"{self._plan.index_of(rejection.index)} {name}: {what}: "
                f"{rejection.public or rejection.reason}"
            )
        report_rejections(self._plan.writer.report, lines)

    def _policy(self, rejection: Rejection) -> str | None:
        """Return what happens to the older version in the index; None where the index has no quarantine."""
        return self._plan.quarantine.get(self._plan.index_of(rejection.index))

    def _entry(self, rejection: Rejection, version: Lsn) -> Quarantined:
        return Quarantined.now(
            self._plan.index_of(rejection.index), rejection.id, rejection.reason, version, rejection.index
        )

    def _is_newer(self, rejection: Rejection, version: Lsn) -> bool:
        """Whether the index holds a later version of the document: a backfill is behind the stream."""
        if self._plan.is_plain:
            return False
        target = self._plan.targets[rejection.index]
        routings = self._shards.of(target) if rejection.index in self._plan.routed else ()
        indexed = read_documents(self._client, target, [rejection.id], routings).get(rejection.id)
        return indexed is not None and indexed.version > version


def _note_quarantined(
    operations: Iterable[DocumentOperation], held: QuarantinedIds, passed: dict[str, set[str]]
) -> Iterator[DocumentOperation]:
    """Yield the same operations, and note in `passed` those of quarantined documents."""
    for operation in operations:
        if operation.id in held.get(operation.index, ()):
            passed.setdefault(operation.index, set()).add(operation.id)
        yield operation


class SinkConnection:
    """The clients and writers of one sink; used from one thread.

    Attributes:
        state: client of the cluster that keeps the state.
        delivery: writes operations.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._plan = work.plan
        # Worker processes begin with different nodes, so that not all send to the first one.
        self._client = Client(work.endpoints.sink, first=os.getpid(), accepted=True)
        state = work.endpoints.state
        self.state = self._client if state is None else Client(state, first=os.getpid(), accepted=True)
        self._writers: list[DocumentWriter] = []
        self._throttled: Delivery | None = None
        self._refresh = EagerRefresh(self._client)
        self.delivery = self._open_delivery(work.plan.writer)

    def close(self) -> None:
        """Close the writers and clients."""
        self._refresh.close()
        for writer in self._writers:
            writer.close()
        self._client.close()
        if self.state is not self._client:
            self.state.close()

    def refresh(self, generations: Iterable[str]) -> None:
        """Let what was written into `generations` be searchable soon."""
        refreshed = self._plan.refreshed
        self._refresh.request(refreshed[name] for name in generations if name in refreshed)

    def probe(self) -> None:
        """Check that the sink answers; a plain sink can only be checked by a write.

        Raises:
            HeadraceError: the sink does not answer.
        """
        if not self._plan.is_plain:
            self._client.wait_until_ready(_PROBE_SECONDS)

    def throttled_delivery(self) -> Delivery:
        """Return a delivery that leaves the stream room in the sink; opened at first use."""
        if self._plan.is_plain:
            return self.delivery
        if self._throttled is None:
            self._throttled = self._open_delivery(self._plan.writer.gentle())
        return self._throttled

    def keys(self, index: str) -> Iterator[Key]:
        """Yield the keys of every document of the index, and of those that were refused, some twice.

        A delete-by-query would fence nothing. For a plain sink these are the keys of the same index in the
        cluster that keeps the state.

        Raises:
            HeadraceError: LOCKED, which names the unit: this index cannot be listed now. SINK_UNREACHABLE,
                and for a plain sink SINK_BUSY, while iterating: begin again.
            SinkFailure: where it is an error of a secondary sink.
        """
        plan = self._plan
        width = len(plan.specs[index].primary_key)
        quarantined = self._quarantined(plan.index_of(index))
        try:
            yield from keys_of_ids(chain(quarantined, self._ids(index)), width)
        except HeadraceError as error:
            if plan.is_plain:
                raise
            own = _error_of_index(error, plan.unit_of(index))
            if not plan.key.sink:
                raise own from error
            raise SinkFailure.of(own, own.units) from error

    def _ids(self, index: str) -> Iterator[str]:
        # A search misses what was written since the last refresh, and that would outlive a truncate.
        if not self._plan.is_plain:
            target = self._plan.targets[index]
            refresh(self._client, target)
            yield from ids(self._client, target)
            return
        for target in self._plan.mirrors[index]:
            # The primary deletes there after this: keys that were deferred would come too late.
            for attempt in retrying():
                with attempt:
                    exists = refresh_if_exists(self.state, target)
            if exists:
                yield from ids(self.state, target)

    def _quarantined(self, index: str) -> list[str]:
        """Return the ids in quarantine; for a plain sink also the primary's, which it may hold."""
        if index not in self._plan.quarantine:
            return []
        key = self._plan.key
        keys = {key, key.of_pipeline()} if self._plan.is_plain else {key}
        for attempt in retrying():  # a failure of the state is none of the sink
            with attempt:
                found = [entry.id for key in keys for entry in Quarantine(self.state, key).entries(index)]
        return found

    def _open_delivery(self, options: WriterOptions) -> Delivery:
        writer = self._open_writer(options)
        self._writers.append(writer)
        return Delivery(self._client, writer, self._plan, state=self.state)

    def _open_writer(self, options: WriterOptions) -> DocumentWriter:
        """Open a writer to the sink."""
        plan = self._plan
        if plan.is_plain:
            return SinkFailureWriter(PlainWriter(self._open_plain, plan.indexes), plan.unit_of)
        writer = open_writer(self._client, plan.targets, options, plan.routed)
        return SinkFailureWriter(writer, plan.unit_of) if plan.key.sink else writer

    def _open_plain(self) -> DocumentWriter:
        kind, options = self._plan.kind, self._work.endpoints.options
        return RelayWriter(**options) if kind == "stdout" else open_sink(kind, options)


def _error_of_index(error: HeadraceError, unit: str) -> HeadraceError:
    """Return an error of listing an index as what it is to the stream: it is closed, gone, or forbidden.

    Where the whole cluster is busy, the keys that are deferred for it cannot be stored either.
    """
    if error.kind not in {Kind.SINK_BUSY, Kind.SINK_REJECTED, Kind.AUTHENTICATION}:
        return error
    return as_locked(error, [unit])


_Item = TypeVar("_Item")
# Items between two looks at the clock.
_LOOK = 50


def limit_rate(
    items: Iterable[_Item],
    per_second: float | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_Item]:
    """Yield the same items, no more than `per_second` on average; None: without a limit."""
    if per_second is None:
        yield from items
        return
    began = clock()
    for number, item in enumerate(items, start=1):
        yield item
        if number % min(_LOOK, max(1, int(per_second))) == 0:
            sleep(max(0.0, began + number / per_second - clock()))
