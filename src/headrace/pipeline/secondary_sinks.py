"""What becomes of the further sinks of a run? (decision 0061)

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
from headrace.pipeline.backfill import BuildFailure, Pace
from headrace.pipeline.generation_log import Lineage
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import OPENSEARCH, Here, Project
from headrace.pipeline.schema_drift import Alterations, KnownCatalog
from headrace.pipeline.secondary_sink import Branch
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
from headrace.spark.job_gate import Turn
from headrace.spark.session import LocalSpark
from headrace.status.board import StatusBoard


class Branches:
    """The further sinks of a run; a context manager.

    Args:
        client: of the cluster that keeps the state; stays the caller's.
    """

    def __init__(self, project: Project, here: Here, client: Client, board: StatusBoard) -> None:
        self._project = project
        self._here = here
        self._client = client
        self._board = board
        self._held = contextlib.ExitStack()
        self._branches: list[Branch] = []
        self._inspection: Inspection | None = None
        self._as_of: Lsn = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            for name, here in self._here.further.items():
                own = self._project.of_sink(name)
                branch = Branch(
                    own,
                    self._reached(own, here, held),
                    self._client,
                    self._board,
                    self._project.deployment.most_parked,
                )
                held.callback(branch.close)
                self._branches.append(branch)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def __bool__(self) -> bool:
        return bool(self._branches)

    def remember(self) -> None:
        """Forget what the deployment names no longer, or what is another sink under the same name now.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        document = sinks_document(self._client, self._project.slot, self._project.prefix)
        known: dict[str, str] = dict((document.load() or {}).get("sinks", {}))
        wanted = {name: self._nature(name) for name in self._project.further}
        for name, nature in known.items():
            if wanted.get(name) != nature:
                forget_sink(self._client, self._project.slot, self._project.prefix, name)
        if known != wanted:
            document.save({"sinks": wanted})

    def inspected(self, connection: Connection, inspection: Inspection) -> Inspection:
        """The inspection with what is kept in each; the states are loaded."""
        for one in self._branches:
            inspection = one.inspected(connection, inspection)
        return inspection

    def take_up(
        self,
        inspection: Inspection,
        catalog: KnownCatalog,
        primary: PipelineState,
        published: Mapping[str, int],
        found: Alterations,
    ) -> None:
        """Go on with each from what earlier runs left; no query runs.

        Raises:
            HeadraceError: what is no further sink's.
        """
        self._inspection, self._as_of = inspection, catalog.baseline.as_of
        for one in self._branches:
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
        for branch in self._branches:
            branch.freeze(reason)

    def needs(self) -> list[tuple[str, Lsn]]:
        """What each generation is called in the inspection, and its `as_of`."""
        return [
            (one.lineage.seeding.name_of(each), each.as_of)
            for one in self._branches
            if one.lineage is not None
            for each in one.written
        ]

    @contextlib.contextmanager
    def beside(self, spark: LocalSpark, works: Mapping[str, Work], turn: Turn, pace: Pace) -> Iterator[None]:
        """What runs beside the stream for each, while this is entered."""
        with contextlib.ExitStack() as running:
            for one in self._branches:
                if one.name in works:
                    running.enter_context(one.beside(spark, works[one.name], turn, pace))
            yield

    def works(self, primary: PipelineState) -> dict[str, Work]:
        """What the workers must know, by sink."""
        found = {one.name: one.work(primary) for one in self._branches}
        return {name: work for name, work in found.items() if work is not None}

    def look(self, primary: PipelineState) -> dict[str, BuildFailure | None]:
        """What is to be done between two batches: by sink, what it failed to fill, if that is it."""
        return {one.name: one.failure() for one in self._branches if one.look(primary)}

    def between(self, primary: PipelineState, asked: Mapping[str, BuildFailure | None]) -> None:
        """No query runs: do it.

        Raises:
            HeadraceError: what is no further sink's.
        """
        assert self._inspection is not None
        for one in self._branches:
            if one.name in asked:
                one.between(self._inspection, self._as_of, primary, asked[one.name])

    def renew(self, emptied: Collection[TableName], catalog: str) -> None:
        """Partitions have come or gone."""
        for one in self._branches:
            one.renew(emptied, catalog)

    def bystanders(self) -> list[tuple[Lineage, list[GenerationState]]]:
        """What is written and nobody reads, in each."""
        found = [(one.lineage, one.lineage.bystanders) for one in self._branches if one.lineage is not None]
        return [(lineage, given) for lineage, given in found if given]

    def lineages(self) -> list[Lineage]:
        """Of those that are taken up."""
        return [one.lineage for one in self._branches if one.lineage is not None]

    def _reached(self, project: Project, here: Here, held: contextlib.ExitStack) -> Here:
        """How workers reach a sink that only this process can write to."""
        if project.kind == OPENSEARCH:
            return here
        if project.kind != "stdout":
            try:
                open_sink(project.kind, here.options).close()  # better now than in every task
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                self._board.report.warning(f"the sink {project.sink_name!r}: {error.cause}")
            return here
        writer = StdoutWriter(sys.stdout, sink=project.sink_name, pretty=bool(here.options.get("pretty")))
        host = "127.0.0.1" if project.reports is None else project.reports.host
        relay = held.enter_context(Relay(writer, host))
        return dataclasses.replace(here, options=relay.options())

    def _nature(self, name: str) -> str:
        """What makes a sink another one, though it has the same name."""
        own, here = self._project.of_sink(name), self._here.further[name]
        if own.kind == OPENSEARCH:
            return OPENSEARCH  # which cluster it is, the generations tell
        options = {} if own.kind == "stdout" else dict(here.options)
        text = json.dumps([own.kind, options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
