"""Keep the durable state of a run's generations.

One object, used from the run's main thread. Which generations the stream writes changes while no query runs,
or when the running query takes over a new plan between two batches. Which generations readers see changes at
any time. Each step can be repeated, so the next start repeats a step that was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence

from headrace.catalog.drift import SchemaDrift
from headrace.errors import HeadraceError, Kind, Retry, retrying
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pipeline.generation_messages import GenerationMessages
from headrace.pipeline.generation_states import (
    Next,
    apply_request,
    plan_from_files,
    superseded,
    unpinned,
    why_built,
)
from headrace.pipeline.generations import GenerationManager, GenerationMonitor
from headrace.pipeline.reloading import Replan
from headrace.state import ControlRequest, ControlRequests, GenerationState, PipelineState, StateStore
from headrace.status.index_board import IndexBoard

_DROP_SECONDS = 60.0
_LOOK_SECONDS = 30.0
_MAKE_SECONDS = 30.0
"""Between two attempts to make a generation that the sink refuses."""


class GenerationLog:
    """The generations of one sink in one run, and their saved state.

    Args:
        state: the state that was saved last.
        manager: creates, serves and drops the generations of the sink.
        requests: the control requests in the meta index.
        as_of: the position of the catalog that new generations are planned for, see `GenerationState.as_of`.
        keep: how many former generations of an index are retained.
    """

    def __init__(
        self,
        state: PipelineState,
        manager: GenerationManager,
        meta: StateStore,
        requests: ControlRequests,
        board: IndexBoard,
        *,
        as_of: Lsn,
        keep: int,
    ) -> None:
        self.state = state
        self.manager = manager
        self.as_of = as_of
        self._meta = meta
        self._requests = requests
        self._messages = GenerationMessages(board, manager.target)
        self._indexes = tuple(manager.inspection.project.specs)
        self._keep = keep
        self._to_drop: list[GenerationState] = []
        self._to_drop_since = 0.0
        self._finished: set[str] = set()
        self._refused: dict[str, str] = {}
        """Why the sink refuses the next generation, by index."""
        self._make_from = 0.0
        self._watch = GenerationMonitor(manager, _LOOK_SECONDS)

    @property
    def written(self) -> list[GenerationState]:
        """Generations that live changes are written to."""
        return [generation for generation in self.state.generations if generation.followed]

    @property
    def building(self) -> list[GenerationState]:
        """Generations that must be backfilled."""
        return [generation for generation in self.written if generation.building]

    @property
    def is_read(self) -> bool:
        """Whether readers see any generation that the stream writes."""
        return any(generation.published for generation in self.written)

    @property
    def serves_all(self) -> bool:
        """Whether readers of every index see a generation that is followed."""
        served = [self.state.served(index) for index in self._indexes]
        return all(generation is not None and generation.followed for generation in served)

    @property
    def unread(self) -> list[GenerationState]:
        """Generations that are written but not read by anybody; the stream can go on without them."""
        served = {generation.index for generation in self.state.generations if generation.published}
        return [
            generation
            for generation in self.written
            if not generation.published and generation.index in served
        ]

    @property
    def to_drop(self) -> frozenset[str]:
        """Names of the generations that wait to be dropped."""
        return frozenset(generation.generation for generation in self._to_drop)

    @property
    def must_drop(self) -> bool:
        """Whether generations that wait to be dropped should be dropped now.

        Dropping can need a new query. So it waits, for a limited time, until generations that are being
        backfilled are complete too, and one new query serves all.
        """
        late = time.monotonic() - self._to_drop_since > _DROP_SECONDS
        return bool(self._to_drop) and (late or not self.building)

    def has_all(self, hashes: Mapping[str, str]) -> bool:
        """Whether a followed generation exists for each of these hashes, by index."""
        return all(
            any(generation.hash == wanted for generation in self.written if generation.index == index)
            for index, wanted in hashes.items()
        )

    def adopt(self, state: PipelineState) -> None:
        """Go on from a state that was loaded, which may still hold generations to drop."""
        self.state = state.without(*self.to_drop)

    def create_first(self, state: PipelineState, joined: Lsn) -> None:
        """Create the first generation of every index, at the slot's consistent point.

        Raises:
            HeadraceError: SINK_REJECTED, or another error of the cluster.
        """
        for index in self._indexes:
            state = state.changed(self.manager.make(index, self.as_of, joined))
            self.state = state
            self._messages.report_building(state.of(index)[-1], "none is complete yet")
        self._save(state)
        for index in self._indexes:
            self._messages.show(index, self.state)

    def resume(
        self,
        published: Mapping[str, int],
        drift: SchemaDrift,
        catalog: str,
        requests: Sequence[ControlRequest],
        *,
        must_make: bool = False,
    ) -> None:
        """Go on from the state that earlier runs saved; nothing runs yet.

        Args:
            published: the publication's memberships now.
            drift: what was altered since the state was saved.
            catalog: the catalog now, as saved in the state.
            requests: control requests that arrived while nothing ran.
            must_make: whether to raise an error where the sink refuses a generation. Else that index waits,
                as far as it has had one.

        Raises:
            HeadraceError: an error of either server.
        """
        state = self.state
        waiting = self._freeze_waiting()
        existing = self.manager.existing(
            generation for generation in state.generations if generation.index in self._indexes
        )
        seen = self.manager.look(existing)
        self._messages.report_altered(seen.altered)
        marked = self._freeze_broken(existing, published, drift, seen.lost)
        state = dataclasses.replace(
            state, generations=(*waiting, *marked), published=published, catalog=catalog
        )
        self.manager.renew(
            [generation for generation in marked if generation.followed], drift.emptied, state.reached
        )
        self.state = state
        for index in self._indexes:
            self._follow_files(index, must_make=must_make or not state.of(index))
        done = [request for request in requests if self._carry_out_request(request)]
        self._save(self.state)
        self.drop_unneeded()
        for index in self._indexes:
            served = self.state.served(index)
            if served is not None:
                self.manager.serve(served)  # an operator may have removed the alias
            self.manager.drop_unknown(index, self.state.of(index))
            self._show(index)
        self._show_waiting()
        self._forget(done)

    def resume_offline(self, published: Mapping[str, int], drift: SchemaDrift) -> None:
        """Do what `resume` does without a request to the sink: nothing is created or served.

        A generation that would have to be assembled again as a whole is frozen, and built again later.
        """
        existing = [generation for generation in self.state.generations if generation.index in self._indexes]
        marked = self._freeze_broken(existing, published, drift, {})
        emptied = [
            dataclasses.replace(generation, frozen="a table lost a partition while the sink was away")
            if generation.followed and self.manager.spec(generation).tables() & set(drift.emptied)
            else generation
            for generation in marked
        ]
        self._save(dataclasses.replace(self.state, generations=tuple(emptied)))

    def freeze_unknown(self) -> None:
        """Freeze generations whose schema is unknown: no file holds it, and the sink was not read."""
        why = "the schema file changed, and what it was cannot be read from the sink"
        generations = (
            generation
            if self.manager.is_known(generation) or not generation.followed
            else dataclasses.replace(generation, frozen=why)
            for generation in self.state.generations
        )
        self.state = dataclasses.replace(self.state, generations=tuple(generations))

    def read_requests(self) -> list[ControlRequest]:
        """Read the control requests that are not carried out yet."""
        return self._requests.read(self._indexes)

    def carry_out(self, requests: Sequence[ControlRequest]) -> None:
        """Carry out control requests while no query runs.

        Raises:
            HeadraceError: an error of the cluster.
        """
        self._reload()
        done = [request for request in requests if self._carry_out_request(request)]
        self._save(self.state)
        self.drop_unneeded()
        self._forget(done)

    def apply(self, requests: Sequence[ControlRequest]) -> list[ControlRequest]:
        """Carry out control requests beside the running query, as far as it need not take part.

        New generations are not backfilled, and unneeded ones not dropped, before the query has the new plan.
        Returns the requests that are carried out; `forget` takes them away afterwards.

        Raises:
            HeadraceError: as for `carry_out`, which may then be called with the same requests.
        """
        self._reload()
        done = [request for request in requests if self._carry_out_request(request)]
        for attempt in retrying():
            with attempt:
                self._meta.save_generations(self.state.generations)
        if done:
            reach("made")
        return done

    def make_refused(self) -> bool:
        """Try again, when it is due, to make what the sink has refused; return whether something was made.

        The query may run, and needs a new plan then.
        """
        if not self._refused or time.monotonic() < self._make_from:
            return False
        before = self._refused
        self._reload()
        for index in tuple(before):
            try:
                self._follow_files(index, must_make=False)
            except HeadraceError:  # the cluster does not answer; what is made so far is kept
                self._make_from = time.monotonic() + _MAKE_SECONDS
                break
            if self._refused.get(index) != before[index]:
                self._show(index)
        if before.keys() == self._refused.keys():
            return False
        for attempt in retrying():
            with attempt:
                self._meta.save_generations(self.state.generations)
        return True

    def replan(self, replan: Replan) -> None:
        """Go on with changed files beside the running query, as far as it need not take part; see `apply`.

        Raises:
            HeadraceError: an error of the cluster; a new query may then go on from what was done.
        """
        self._reload()
        self.manager, project = replan.manager, replan.manager.inspection.project
        self.as_of, self._keep = replan.catalog.baseline.as_of, project.deployment.generations.keep
        self._indexes = tuple(project.specs)
        self._refused = {index: why for index, why in self._refused.items() if index in project.specs}
        self._watch = GenerationMonitor(self.manager, _LOOK_SECONDS)
        self.state = self.state.changed(*replan.frozen)
        known = (*self._indexes, *project.waiting)
        removed = [entry.generation for entry in self.state.generations if entry.index not in known]
        self.state = self.state.changed(*self._freeze_waiting()).without(*removed)
        for index in self._indexes:
            self._follow_files(index, must_make=index not in self._refused)
        for attempt in retrying():
            with attempt:
                self._meta.save_generations(self.state.generations)
        reach("made")
        for index in self._indexes:
            served = self.state.served(index)
            if served is not None:
                self.manager.serve(served)  # with the settings that a living index can change
            self._show(index)
        self._show_waiting()

    def forget(self, done: Sequence[ControlRequest]) -> None:
        """Remove requests that are carried out, once the query has the new plan."""
        if done:
            reach("joined")
        self._forget(done)

    def covers(self, position: Lsn) -> bool:
        """Whether the saved state holds all before `position`; False where the cluster does not answer."""
        try:
            state = self._meta.load()
        except HeadraceError as error:
            if error.retry is not Retry.BACK_OFF:
                raise
            return False
        return state is not None and state.reached >= position

    def note_partitions(self, emptied: Collection[TableName], catalog: str) -> None:
        """Save the catalog after partitions were attached or detached; renew generations that lost rows.

        Raises:
            HeadraceError: an error of either server; the call can be repeated.
        """
        self._reload()
        self.manager.renew(self.written, emptied, self.state.reached)
        self._meta.save(dataclasses.replace(self.state, catalog=catalog))
        self.state = dataclasses.replace(self.state, catalog=catalog)

    def prepare(self, filled: Collection[GenerationState]) -> None:
        """Finish several backfilled generations with common requests; on failure `complete` finishes each."""
        new = [generation for generation in filled if generation.generation not in self._finished]
        if len(new) > 1:
            with contextlib.suppress(HeadraceError):
                self.manager.finish_all(new)
                self._finished |= {generation.generation for generation in new}

    def complete(self, generation: GenerationState, written: int) -> None:
        """Let readers see a generation that is backfilled and compared. The query may run.

        Args:
            generation: the complete generation.
            written: documents that the backfill wrote; the stream may have written more.
        """
        before = self.state.served(generation.index)
        if generation.generation not in self._finished:
            self.manager.finish(generation)
        self._finished.discard(generation.generation)
        held = self.manager.count(generation)
        documents = written if held is None else held
        reach("filled")
        self._serve(generation)
        reach("swapped")
        self._meta.save_generations(self.state.generations)
        is_first = before is None or before.generation == generation.generation
        if is_first:  # other indexes are of a deployment that was torn down
            self.manager.drop_unknown(generation.index, (*self.state.of(generation.index), *self._to_drop))
        self.manager.forget_progress(generation)
        self._messages.clear_backfill(generation.index, documents)
        self._messages.show(generation.index, self.state)
        self._messages.report_complete(generation, documents, before)

    def freeze(self, generations: Collection[GenerationState], reason: str, remedy: str = "") -> None:
        """Freeze generations, so that the others can go on; no query runs. The reason is stored."""
        self._reload()
        marked = [dataclasses.replace(generation, frozen=reason) for generation in generations]
        self._save(self.state.changed(*marked))
        for generation in marked:
            self._messages.warn_of_frozen(generation, f"{reason}. {remedy}" if remedy else reason)

    def freeze_replaced(self) -> list[GenerationState]:
        """Return, frozen, the generations whose index was replaced; checked twice a minute.

        A thread asks the cluster, so that this call never waits for it. The health monitor reports a cluster
        that does not answer.
        """
        self._watch.look(self.state.generations)
        self._messages.report_altered(self._watch.altered())
        self._messages.report_faults(self._watch.faults)
        lost = self._watch.lost(self.written)
        return [dataclasses.replace(generation, frozen=why) for generation, why in lost]

    def rebuild(self, frozen: Collection[GenerationState]) -> None:
        """Freeze generations and build their indexes again; no query runs.

        Raises:
            HeadraceError: an error of the cluster.
        """
        self._reload()
        self.state = self.state.changed(*frozen)
        self._messages.warn_of_rebuilding(frozen)
        for index in {generation.index for generation in frozen}:
            self._follow_files(index, must_make=False)
            self._show(index)
        self._save(self.state)
        self.drop_unneeded()

    def note_refused(self, index: str, why: str) -> None:
        """Show that the sink refuses the next generation of an index, which the caller tries again."""
        self._messages.warn_of_refused(index, self.state, why)

    def drop_unneeded(self) -> None:
        """Drop the generations that wait for it; no running query may have them in its plan.

        Raises:
            HeadraceError: an error of the cluster; the next call tries the rest again.
        """
        while self._to_drop:
            self.manager.drop(self._to_drop[0])
            del self._to_drop[0]

    def _freeze_waiting(self) -> list[GenerationState]:
        """Return, frozen, the generations of indexes whose schema files do not fit the database."""
        waiting = self.manager.inspection.project.waiting
        return [
            dataclasses.replace(generation, frozen=generation.frozen or waiting[generation.index])
            for generation in self.state.generations
            if generation.index in waiting
        ]

    def _show_waiting(self) -> None:
        for index, why in self.manager.inspection.project.waiting.items():
            self._messages.show(index, self.state)
            self._messages.warn_of_waiting(index, why)

    def _freeze_broken(
        self,
        existing: Collection[GenerationState],
        published: Mapping[str, int],
        drift: SchemaDrift,
        lost: Mapping[str, str],
    ) -> tuple[GenerationState, ...]:
        """Freeze generations that lost changes or whose plan does not fit the tables any more; warn of them.

        A table that was out of the publication for a while has another membership now. `lost` as in `Seen`.
        """
        known = self.state.published.items()
        left_tables = {table for table, member in known if published.get(table, member) != member}
        reasons = {
            generation.generation: lost.get(generation.uuid)
            or self._why_broken(generation, left_tables, drift)
            for generation in existing
            if generation.followed and self.manager.is_known(generation)
        }
        marked = tuple(
            dataclasses.replace(generation, frozen=reasons.get(generation.generation) or generation.frozen)
            for generation in existing
        )
        self._messages.warn_of_rebuilding(
            [
                generation
                for generation in marked
                if generation.frozen and self.state.follows(generation.generation)
            ]
        )
        return marked

    def _why_broken(
        self, generation: GenerationState, left_tables: Collection[str], drift: SchemaDrift
    ) -> str:
        usage = self.manager.inspection.usage(self.manager.name_of(generation))
        if not {str(table) for table in usage}.isdisjoint(left_tables):
            return "a table had left the publication, its changes are lost"
        return "; ".join(dict.fromkeys(change.what for change in drift.wrong if change.concerns(usage)))

    def _forget(self, done: Sequence[ControlRequest]) -> None:
        for request in done:
            for attempt in retrying():
                with attempt:
                    self._requests.done(request)
            self._messages.show(request.index, self.state)

    def _carry_out_request(self, request: ControlRequest) -> bool:
        """Carry out a request; return whether to remove it, because it is done or can never be."""
        try:
            step = apply_request(self.state.of(request.index), self.manager.hashes[request.index], request)
            self._carry_out(request.index, step)
        except HeadraceError as error:
            self._messages.report_failed(request, error)
            return error.retry is not Retry.BACK_OFF
        return True

    def _follow_files(self, index: str, *, must_make: bool = True) -> None:
        """Do what the schema files require of an index; where the sink refuses that, the index may wait."""
        wanted = self.manager.hashes[index]
        self.state = self.state.changed(*unpinned(self.state.of(index), wanted))
        try:
            self._carry_out(index, plan_from_files(self.state.of(index), wanted))
        except HeadraceError as error:
            if must_make or error.kind is Kind.SINK_UNREACHABLE:
                raise
            self._refused = {**self._refused, index: error.cause}
            self._make_from = time.monotonic() + _MAKE_SECONDS
            with contextlib.suppress(HeadraceError):  # of a generation that was made in part
                self.manager.drop_unknown(index, (*self.state.of(index), *self._to_drop))
        else:
            self._refused = {name: why for name, why in self._refused.items() if name != index}

    def _show(self, index: str) -> None:
        self._messages.show(index, self.state)
        if index in self._refused:
            self.note_refused(index, self._refused[index])

    def _carry_out(self, index: str, step: Next) -> None:
        self._mark_to_drop(step.drop)
        if step.serve is not None:
            self._serve(step.serve)
            self._messages.report_served(step.serve)
        if step.make:
            why = why_built(self.state.of(index), step.request)
            made = self.manager.make(index, self.as_of, self.state.reached, step.request)
            self.state = self.state.changed(made)
            self._messages.report_building(made, why)

    def _serve(self, generation: GenerationState) -> None:
        """Swap the alias and note that; superseded generations wait to be dropped."""
        before = self.state.served(generation.index)
        self.manager.serve(generation)
        backfilled_at = self.state.reached if generation.backfilled_at is None else generation.backfilled_at
        state = self.state
        if before is not None and before.generation != generation.generation:
            state = state.changed(dataclasses.replace(before, published=False))
        served_at = generation.served_at if generation.published else time.time()
        self.state = state.changed(
            dataclasses.replace(generation, backfilled_at=backfilled_at, published=True, served_at=served_at)
        )
        name = None if before is None else before.generation
        self._mark_to_drop(superseded(self.state.of(generation.index), name, self._keep))

    def _mark_to_drop(self, generations: Collection[GenerationState]) -> None:
        if not self._to_drop:
            self._to_drop_since = time.monotonic()
        self._to_drop += generations
        self.state = self.state.without(*(generation.generation for generation in generations))

    def _reload(self) -> None:
        """Load the state that the last batch has saved, and keep the generations of this process."""
        for attempt in retrying():
            with attempt:
                state = self._meta.load()
        assert state is not None, "the state exists while a run lives"
        self.state = dataclasses.replace(state, generations=self.state.generations)

    def _save(self, state: PipelineState) -> None:
        for attempt in retrying():
            with attempt:
                self._meta.save(state)
        self.state = state
