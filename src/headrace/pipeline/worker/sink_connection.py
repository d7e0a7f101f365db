"""Connect a worker to the sink that it writes to."""

from __future__ import annotations

import os
from collections.abc import Iterator

from headrace.errors import HeadraceError
from headrace.model import Key, key_of_id
from headrace.pipeline.worker.delivery import Delivery
from headrace.pipeline.worker.failure_policy import SinkFailure, SinkFailureWriter
from headrace.pipeline.worker.plan import Work
from headrace.sinks.base import DocumentWriter
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import ids, refresh
from headrace.sinks.opensearch.routed import open_writer
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.sinks.plain import PlainWriter
from headrace.sinks.registry import open_sink
from headrace.sinks.stdout import RelayWriter

_PROBE_SECONDS = 5.0


class SinkConnection:
    """The clients and writers of one sink; used from one thread.

    Attributes:
        state: client of the cluster that keeps the state.
        delivery: writes operations.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._plan = work.plan
        self._client = Client(work.endpoints.sink, first=os.getpid())
        state = work.endpoints.state
        self.state = self._client if state is None else Client(state, first=os.getpid())
        self._writers: list[DocumentWriter] = []
        self._throttled: Delivery | None = None
        self.delivery = self._open_delivery(work.plan.writer)

    def close(self) -> None:
        """Close the writers and clients."""
        for writer in self._writers:
            writer.close()
        self._client.close()
        if self.state is not self._client:
            self.state.close()

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
        """Yield the keys of every document of the index: a delete-by-query would fence nothing.

        For a plain sink these are the keys of the same index in the cluster that keeps the state. Ids that no
        row can have are skipped: another program wrote them.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, while iterating: begin again.
            SinkFailure: where it is an error of a secondary sink.
        """
        plan = self._plan
        client, target = self._client, plan.targets[index]
        if plan.is_plain:
            client, target = self.state, plan.mirrors[index]
        width = len(plan.specs[index].primary_key)
        try:
            refresh(client, target)
            for id_ in ids(client, target):
                key = key_of_id(id_, width)
                if len(key) == width:
                    yield key
        except HeadraceError as error:
            if plan.is_plain or not self._work.sink:
                raise
            raise SinkFailure.of(error) from error

    def _open_delivery(self, options: WriterOptions) -> Delivery:
        writer = self._open_writer(options)
        self._writers.append(writer)
        return Delivery(self._client, writer, self._plan, state=self.state)

    def _open_writer(self, options: WriterOptions) -> DocumentWriter:
        """Open a writer to the sink."""
        plan = self._plan
        if plan.is_plain:
            return SinkFailureWriter(PlainWriter(self._open_plain, plan.indexes))
        writer = open_writer(self._client, plan.targets, options, plan.routed)
        return SinkFailureWriter(writer) if self._work.sink else writer

    def _open_plain(self) -> DocumentWriter:
        kind, options = self._plan.kind, self._work.endpoints.options
        return RelayWriter(**options) if kind == "stdout" else open_sink(kind, options)
