"""What becomes of the secondary sinks of a run? (decision 0061)

Only between two batches does the stream take a branch up, or leave one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Self

from headrace.errors import HeadraceError, Retry
from headrace.model import Lsn, TableName
from headrace.pipeline.backfill import BackfillFailure, BackfillRate
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import OPENSEARCH, Endpoints, Project
from headrace.pipeline.schema_drift import CatalogBaseline, SchemaDrift
from headrace.pipeline.secondary_sink import SecondarySink
from headrace.pipeline.worker.plan import Work
from headrace.postgres.connection import Connection
from headrace.sinks.opensearch import (
    Client,
    GenerationState,
    PipelineState,
)
from headrace.sinks.opensearch.secondary_sinks import forget_sink, sinks_document
from headrace.sinks.registry import open_sink
from headrace.sinks.stdout import Relay, StdoutWriter
from headrace.spark.job_gate import JobGate
from headrace.spark.session import LocalSpark
from headrace.status.board import StatusBoard


class SecondarySinks:
    """The secondary sinks of a run; a context manager.

    Args:
        client: of the cluster that keeps the state; stays the caller's.
    """

    def __init__(self, project: Project, endpoints: Endpoints, client: Client, board: StatusBoard) -> None:
        self._project = project
        self._endpoints = endpoints
        self._client = client
        self._board = board
        self._held = contextlib.ExitStack()
        self._secondary_sinks: list[SecondarySink] = []
        self._inspection: Inspection | None = None
        self._as_of: Lsn = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            for name, endpoints in self._endpoints.secondary.items():
                own = self._project.of_sink(name)
                secondary_sink = SecondarySink(
                    own,
                    self._reached(own, endpoints, held),
                    self._client,
                    self._board,
                    self._project.deployment.max_deferred,
                )
                held.callback(secondary_sink.close)
                self._secondary_sinks.append(secondary_sink)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __bool__(self) -> bool:
        return bool(self._secondary_sinks)

    def remember(self) -> None:
        """Forget what the deployment names no longer, or what is another sink under the same name now.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        document = sinks_document(self._client, self._project.slot, self._project.prefix)
        known: dict[str, str] = dict((document.load() or {}).get("sinks", {}))
        wanted = {name: self._nature(name) for name in self._project.secondary}
        for name, nature in known.items():
            if wanted.get(name) != nature:
                forget_sink(self._client, self._project.slot, self._project.prefix, name)
        if known != wanted:
            document.save({"sinks": wanted})

    def inspected(self, connection: Connection, inspection: Inspection) -> Inspection:
        """The inspection with what is kept in each; the states are loaded."""
        for one in self._secondary_sinks:
            inspection = one.inspected(connection, inspection)
        return inspection

    def take_up(
        self,
        inspection: Inspection,
        catalog: CatalogBaseline,
        primary: PipelineState,
        published: Mapping[str, int],
        found: SchemaDrift,
    ) -> None:
        """Go on with each from what earlier runs left; no query runs.

        Raises:
            HeadraceError: what is no secondary sink's.
        """
        self._inspection, self._as_of = inspection, catalog.baseline.as_of
        for one in self._secondary_sinks:
            one.take_up(
                inspection,
                primary,
                as_of=self._as_of,
                published=published,
                found=found,
                catalog=catalog.baseline.to_text(),
            )

    def freeze(self, reason: str) -> None:
        """See `Branch.freeze`."""
        for secondary_sink in self._secondary_sinks:
            secondary_sink.freeze(reason)

    def needs(self) -> list[tuple[str, Lsn]]:
        """What each generation is called in the inspection, and its `as_of`."""
        return [
            (one.generation_log.seeding.name_of(each), each.as_of)
            for one in self._secondary_sinks
            if one.generation_log is not None
            for each in one.written
        ]

    @contextlib.contextmanager
    def beside(
        self, spark: LocalSpark, works: Mapping[str, Work], job_gate: JobGate, pace: BackfillRate
    ) -> Iterator[None]:
        """What runs beside the stream for each, while this is entered."""
        with contextlib.ExitStack() as running:
            for one in self._secondary_sinks:
                if one.name in works:
                    running.enter_context(one.beside(spark, works[one.name], job_gate, pace))
            yield

    def works(self, primary: PipelineState) -> dict[str, Work]:
        """What the workers must know, by sink."""
        found = {one.name: one.work(primary) for one in self._secondary_sinks}
        return {name: work for name, work in found.items() if work is not None}

    def look(self, primary: PipelineState) -> dict[str, BackfillFailure | None]:
        """What is to be done between two batches: by sink, what it failed to fill, if that is it."""
        return {one.name: one.failure() for one in self._secondary_sinks if one.look(primary)}

    def between(self, primary: PipelineState, asked: Mapping[str, BackfillFailure | None]) -> None:
        """No query runs: do it.

        Raises:
            HeadraceError: what is no secondary sink's.
        """
        assert self._inspection is not None
        for one in self._secondary_sinks:
            if one.name in asked:
                one.between(self._inspection, self._as_of, primary, asked[one.name])

    def renew(self, emptied: Collection[TableName], catalog: str) -> None:
        """Partitions have come or gone."""
        for one in self._secondary_sinks:
            one.renew(emptied, catalog)

    def bystanders(self) -> list[tuple[GenerationLog, list[GenerationState]]]:
        """What is written and nobody reads, in each."""
        found = [
            (one.generation_log, one.generation_log.bystanders)
            for one in self._secondary_sinks
            if one.generation_log is not None
        ]
        return [(generation_log, given) for generation_log, given in found if given]

    def generation_logs(self) -> list[GenerationLog]:
        """Of those that are taken up."""
        return [one.generation_log for one in self._secondary_sinks if one.generation_log is not None]

    def _reached(self, project: Project, endpoints: Endpoints, held: contextlib.ExitStack) -> Endpoints:
        """How workers reach a sink that only this process can write to."""
        if project.kind == OPENSEARCH:
            return endpoints
        if project.kind != "stdout":
            try:
                open_sink(project.kind, endpoints.options).close()  # better now than in every task
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                self._board.report.warning(f"the sink {project.sink_name!r}: {error.cause}")
            return endpoints
        writer = StdoutWriter(
            sys.stdout, sink=project.sink_name, pretty=bool(endpoints.options.get("pretty"))
        )
        host = "127.0.0.1" if project.reports is None else project.reports.host
        relay = held.enter_context(Relay(writer, host))
        return dataclasses.replace(endpoints, options=relay.options())

    def _nature(self, name: str) -> str:
        """What makes a sink another one, though it has the same name."""
        own, endpoints = self._project.of_sink(name), self._endpoints.secondary[name]
        if own.kind == OPENSEARCH:
            return OPENSEARCH  # which cluster it is, the generations tell
        options = {} if own.kind == "stdout" else dict(endpoints.options)
        text = json.dumps([own.kind, options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
