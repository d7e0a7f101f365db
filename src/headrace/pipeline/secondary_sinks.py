"""Manage all secondary sinks of a run (decision 0061).

The stream starts or stops writing to a secondary sink only between two batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Self

from headrace.catalog.drift import SchemaDrift
from headrace.errors import HeadraceError, Retry
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pipeline.backfill import BackfillFailure, BackfillRate
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Project
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.pipeline.secondary_sink import SecondarySink
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.postgres.connection import Connection
from headrace.sinks.opensearch import Client
from headrace.sinks.registry import open_sink
from headrace.sinks.stdout import Relay, StdoutWriter
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark
from headrace.state import PipelineState
from headrace.state.sink_notes import forget_sink, sinks_document
from headrace.status.board import StatusBoard


class SecondarySinks:
    """The secondary sinks of a run; a context manager.

    Args:
        client: of the cluster that keeps the state; the caller closes it.
    """

    def __init__(self, project: Project, endpoints: Endpoints, client: Client, board: StatusBoard) -> None:
        self._project = project
        self._endpoints = endpoints
        self._client = client
        self._board = board
        self._held = contextlib.ExitStack()
        self._sinks: list[SecondarySink] = []
        self._inspection: Inspection | None = None
        self._as_of: Lsn = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            for target in self._project.secondary.values():
                endpoints = self._resolve_endpoints(target, held)
                sink = SecondarySink(self._project, target, endpoints, self._client, self._board)
                held.callback(sink.close)
                self._sinks.append(sink)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def change_project(self, project: Project) -> None:
        """Go on with changed files, which have the same sinks; no query runs."""
        self._project = project
        for sink in self._sinks:
            sink.change_project(project)

    def forget_former(self) -> None:
        """Forget sinks that the deployment no longer names, or that are another sink by the same name.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        document = sinks_document(self._client, self._project.key)
        saved: dict[str, str] = dict((document.load() or {}).get("sinks", {}))
        configured = {name: self._identity(target) for name, target in self._project.secondary.items()}
        for name, identity in saved.items():
            if configured.get(name) != identity:
                forget_sink(self._client, self._project.key.of_sink(name))
        if saved != configured:
            document.save({"sinks": configured})

    def inspect(self, connection: Connection, inspection: Inspection) -> Inspection:
        """Add the retained generations of each sink to an inspection, and load the states."""
        for sink in self._sinks:
            inspection = sink.inspect(connection, inspection)
        return inspection

    def resume(
        self,
        inspection: Inspection,
        catalog: CatalogBaseline,
        primary: PipelineState,
        published: Mapping[str, int],
        drift: SchemaDrift,
    ) -> None:
        """Go on with each sink from the state that earlier runs saved; no query runs.

        Raises:
            HeadraceError: an error that does not come from a secondary sink.
        """
        self._inspection, self._as_of = inspection, catalog.baseline.as_of
        for sink in self._sinks:
            sink.resume(
                inspection,
                primary,
                as_of=self._as_of,
                published=published,
                drift=drift,
                catalog=catalog.baseline.to_text(),
            )

    def freeze(self, reason: str) -> None:
        """Freeze every generation of every secondary sink; see `SecondarySink.freeze`."""
        for sink in self._sinks:
            sink.freeze(reason)

    def needs(self) -> list[tuple[str, Lsn]]:
        """Return each generation's name in the inspection and its `as_of`."""
        return [
            (sink.generation_log.manager.name_of(generation), generation.as_of)
            for sink in self._sinks
            if sink.generation_log is not None
            for generation in sink.written
        ]

    @contextlib.contextmanager
    def beside(
        self, spark: LocalSpark, works: Mapping[str, Work], job_gate: JobGate, rate: BackfillRate
    ) -> Iterator[None]:
        """Run the backfill and the catch-up of each sink, while this is entered."""
        with contextlib.ExitStack() as running:
            for sink in self._sinks:
                if sink.name in works:
                    running.enter_context(sink.beside(spark, works[sink.name], job_gate, rate))
            yield

    def works(self, primary: PipelineState) -> dict[str, Work]:
        """Return what the workers need, by sink."""
        works = {sink.name: sink.work(primary) for sink in self._sinks}
        return {name: work for name, work in works.items() if work is not None}

    def look(self, primary: PipelineState) -> dict[str, BackfillFailure | None]:
        """Return the sinks that need something between two batches, with their backfill failures."""
        return {sink.name: sink.failure() for sink in self._sinks if sink.look(primary)}

    def apply(self, primary: PipelineState, failures: Mapping[str, BackfillFailure | None]) -> None:
        """Do what `look` has found to be necessary; no query runs.

        Raises:
            HeadraceError: an error that does not come from a secondary sink.
        """
        assert self._inspection is not None
        for sink in self._sinks:
            if sink.name in failures:
                sink.apply(self._inspection, self._as_of, primary, failures[sink.name])

    def note_partitions(self, emptied: Collection[TableName], catalog: str) -> None:
        """Note in each sink that partitions were attached or detached."""
        for sink in self._sinks:
            sink.note_partitions(emptied, catalog)

    def generation_logs(self) -> list[GenerationLog]:
        """Return the logs of the sinks that are resumed."""
        return [sink.generation_log for sink in self._sinks if sink.generation_log is not None]

    def _resolve_endpoints(self, target: SinkTarget, held: contextlib.ExitStack) -> Endpoints:
        """Return how workers reach a sink; one of this process alone is reached through a relay."""
        endpoints = self._endpoints.of(target.key)
        if not target.is_plain:
            return endpoints
        if not target.is_stdout:
            try:
                open_sink(target.kind, endpoints.options).close()  # fails now instead of in every task
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                self._board.report.warning(f"the sink {target.name!r}: {error.cause}")
            return endpoints
        writer = StdoutWriter(sys.stdout, sink=target.name, pretty=bool(endpoints.options.get("pretty")))
        host = "127.0.0.1" if target.reports is None else target.reports.host
        relay = held.enter_context(Relay(writer, host))
        return dataclasses.replace(endpoints, options=relay.options())

    def _identity(self, target: SinkTarget) -> str:
        """Return what makes a sink a different one, though it has the same name."""
        if not target.is_plain:
            return target.kind  # the generations show which cluster it is
        options = {} if target.is_stdout else dict(self._endpoints.of(target.key).options)
        text = json.dumps([target.kind, options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
