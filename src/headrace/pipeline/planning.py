"""Plan what the workers write: every generation that is followed, in every sink."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.assembly.transform import transform_digest
from headrace.catalog.needs import Needs
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work
from headrace.resolution import plan_resolution
from headrace.state import GenerationState, PipelineState

_Value = TypeVar("_Value")


@dataclass(eq=False, slots=True)
class Plans:
    """Makes plans from the state and from what the files mean; used from one thread.

    Attributes:
        definitions: what the files mean in the database.
        endpoints: of the deployment; a sink of this process alone is reached as they say.
    """

    definitions: Definitions
    endpoints: Endpoints
    _made_of: object = field(default=None, init=False)
    _work: Work | None = field(default=None, init=False)
    _content: bytes = field(default=b"", init=False)

    def work(self, state: PipelineState) -> Work:
        """Return the work of the primary sink, with that of every secondary sink beside it."""
        return self._plan(state)[0]

    def content(self, state: PipelineState) -> bytes:
        """Return what the work is made of: another one means that tasks have to write otherwise."""
        return self._plan(state)[1]

    def needs(self, state: PipelineState) -> Needs:
        """Return what the log must carry."""
        return self.definitions.needs(_followed(state))

    def _plan(self, state: PipelineState) -> tuple[Work, bytes]:
        made_of = (self.definitions.version, tuple(_followed(state)))
        if self._work is None or made_of != self._made_of:
            self._work = self._make(state)
            works = (self._work, *self._work.secondary.values())
            # Which generation is served only orders the writes of a batch.
            plans = [dataclasses.replace(work.plan, served=frozenset()) for work in works]
            self._content, self._made_of = pickle.dumps(plans), made_of
        return self._work, self._content

    def _make(self, state: PipelineState) -> Work:
        project = self.definitions.inspection.project
        mirrors = _mirrors(state)
        secondary = {}
        # Also of a sink that nothing is written to yet: a later plan may, and endpoints cannot change.
        for name, target in project.secondary.items():
            plan = self._plan_of(target, _followed(state, name), mirrors if target.is_plain else {})
            secondary[name] = Work(plan, self.endpoints.of(target.key))
        primary = self._plan_of(project.primary, _followed(state, ""), {})
        return Work(primary, dataclasses.replace(self.endpoints, secondary={}), secondary)

    def _plan_of(
        self, target: SinkTarget, written: Sequence[GenerationState], mirrors: Mapping[str, tuple[str, ...]]
    ) -> DocumentsPlan:
        definitions = self.definitions
        project, catalog = definitions.inspection.project, definitions.inspection.catalog
        # A generation whose schema cannot be read is not written until it is known, or is given up.
        known = {
            generation: dataclasses.replace(spec, name=generation.generation)
            for generation in written
            if (spec := definitions.spec_of(generation)) is not None
        }
        specs = {generation.generation: spec for generation, spec in known.items()}

        def by_name(value: Callable[[GenerationState], _Value]) -> dict[str, _Value]:
            return {generation.generation: value(generation) for generation in known}

        return DocumentsPlan(
            specs=specs,
            catalog=catalog,
            resolution=plan_resolution(
                specs.values(),
                catalog,
                by_name(lambda generation: generation.as_of),
                _filled_blindly(known) if target.is_plain else (),
            ),
            targets=by_name(lambda generation: generation.write_alias),
            writer=target.writer_options(),
            key=target.key,
            skip_rejected=project.skip_rejected(),
            quarantine=project.quarantine(),
            large_change=project.deployment.large_change,
            indexes=by_name(lambda generation: generation.index),
            served=frozenset(generation.generation for generation in known if generation.published),
            kind=target.kind,
            refreshed=by_name(lambda generation: target.prefix + generation.index) if target.is_eager else {},
            mirrors=by_name(lambda generation: mirrors.get(generation.index, ())),
            code={name: transform_digest(name) for spec in specs.values() if (name := spec.transform)},
        )


def _filled_blindly(generations: Iterable[GenerationState]) -> set[str]:
    """Return the generations of a sink that lists no ids which may lack a row until it is updated.

    A row that moves in its file while ranges are read may be in none of them.
    """
    return {generation.generation for generation in generations if generation.building}


def _followed(state: PipelineState, sink: str | None = None) -> list[GenerationState]:
    return [
        generation
        for generation in state.generations
        if generation.followed and sink in (None, generation.sink)
    ]


def _mirrors(state: PipelineState) -> dict[str, tuple[str, ...]]:
    """Return, by index, where the documents are listed that a sink has which cannot list its own.

    In every generation: one that is not followed any more lacks the newest rows, and the next one those that
    are gone.
    """
    found: dict[str, tuple[str, ...]] = {}
    for generation in state.generations:
        if not generation.sink:
            found[generation.index] = (*found.get(generation.index, ()), generation.generation)
    return found
