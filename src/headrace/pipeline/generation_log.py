"""What is durable of a run's generations, and when does it change?

One object in the run's main thread. What the stream writes changes while no query runs, or once the running
one has taken it over between two batches; what readers see changes at any time. Whatever is killed in between
is done again by the next start: each step can be repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence

from headrace.errors import HeadraceError, Retry, patiently
from headrace.model import Lsn, TableName
from headrace.model.failpoints import reach
from headrace.pipeline.generation_monitor import GenerationMonitor
from headrace.pipeline.generation_states import Next, obey, succeed, superseded, why_made
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.schema_drift import SchemaDrift
from headrace.sinks.opensearch import (
    ControlRequest,
    ControlRequests,
    GenerationState,
    MetaIndex,
    PipelineState,
)
from headrace.status.board import IndexBoard, IndexPhase

_DROP_SECONDS = 60.0
_LOOK_SECONDS = 30.0


class GenerationLog:
    """The generations of a run.

    Args:
        state: as it was saved last.
        as_of: what new generations are planned for, see `GenerationState.as_of`.
        keep: how many former generations of an index are kept.
    """

    def __init__(
        self,
        state: PipelineState,
        seeding: GenerationManager,
        meta: MetaIndex,
        orders: ControlRequests,
        board: IndexBoard,
        *,
        inspection: Inspection,
        as_of: Lsn,
        keep: int,
    ) -> None:
        self.state = state
        self.seeding = seeding
        self.as_of = as_of
        self._meta = meta
        self._orders = orders
        self._board = board
        self._inspection = inspection
        self._indexes = tuple(inspection.project.specs)
        self._keep = keep
        self._doomed: list[GenerationState] = []
        self._doomed_since = 0.0
        self._finished: set[str] = set()
        self._faults: Mapping[str, str] = {}
        self._watch = GenerationMonitor(seeding, _LOOK_SECONDS)

    @property
    def written(self) -> list[GenerationState]:
        """Those that live changes go to."""
        return [one for one in self.state.generations if one.followed]

    @property
    def building(self) -> list[GenerationState]:
        """Those that are to be filled."""
        return [one for one in self.written if one.building]

    @property
    def is_read(self) -> bool:
        """Whether readers see anything of what the stream writes."""
        return any(one.published for one in self.written)

    @property
    def serves_all(self) -> bool:
        """Whether readers of every index see what is followed."""
        served = [self.state.served(index) for index in self._indexes]
        return all(generation is not None and generation.followed for generation in served)

    @property
    def bystanders(self) -> list[GenerationState]:
        """Those that are written, and that nobody reads: the stream can go on without them."""
        served = {one.index for one in self.state.generations if one.published}
        return [one for one in self.written if not one.published and one.index in served]

    @property
    def doomed(self) -> frozenset[str]:
        """Those that wait to be deleted."""
        return frozenset(one.generation for one in self._doomed)

    @property
    def must_drop(self) -> bool:
        """Whether it is time to delete what is doomed.

        What is built beside it is soon complete, as a rule: where the query has to begin anew for it, then
        once for all of them.
        """
        late = time.monotonic() - self._doomed_since > _DROP_SECONDS
        return bool(self._doomed) and (late or not self.building)

    def adopt(self, state: PipelineState) -> None:
        """Go on from a state that was loaded; what is doomed may be in it still."""
        self.state = state.without(*self.doomed)

    def born(self, state: PipelineState, joined: Lsn) -> None:
        """Make the first generation of every index, at the slot's beginning.

        Raises:
            HeadraceError: SINK_REJECTED and what else the cluster does not bear.
        """
        for index in self._indexes:
            state = state.changed(self.seeding.make(index, self.as_of, joined))
            self.state = state
            self._board.report.info(f"{index}: builds {state.of(index)[-1].generation}: none is complete yet")
        self._save(state)
        for index in self._indexes:
            self.tell(index)

    def take_up(
        self, published: Mapping[str, int], found: SchemaDrift, catalog: str, orders: Sequence[ControlRequest]
    ) -> None:
        """Go on from what earlier runs left; nothing runs yet.

        Args:
            published: the publication's memberships now.
            found: what was altered since.
            catalog: what is known of the catalog now.

        Raises:
            HeadraceError: what either side does not bear.
        """
        state = self.state
        there = self.seeding.those_there(one for one in state.generations if one.index in self._indexes)
        left, seen = self._left(published), self.seeding.look(there)
        self._tell_altered(seen.altered)
        marked = tuple(self._marked(one, left, found, seen.lost.get(one.uuid, "")) for one in there)
        self._warn_of([one for one in marked if one.frozen and state.follows(one.generation)])
        state = dataclasses.replace(state, generations=marked, published=published, catalog=catalog)
        self.seeding.renew([one for one in marked if one.followed], found.emptied, state.reached)
        self.state = state
        for index in self._indexes:
            self._carry_out(index, succeed(state.of(index), self.seeding.hashes[index]))
        done = [order for order in orders if self._obeyed(order)]
        self._save(self.state)
        self.drop_doomed()
        for index in self._indexes:
            served = self.state.served(index)
            if served is not None:
                self.seeding.serve(served)  # somebody may have removed the alias
            self.seeding.drop_strangers(index, self.state.of(index))
            self.tell(index)
        self._forget(done)

    def take_up_away(self, published: Mapping[str, int], found: SchemaDrift) -> None:
        """The same where the sink is not to be asked now: nothing is made or served.

        What is to be assembled anew as a whole waits for it in vain, and is made again later.
        """
        there = [one for one in self.state.generations if one.index in self._indexes]
        left = self._left(published)
        marked = [self._marked(one, left, found) for one in there]
        self._warn_of([one for one in marked if one.frozen and self.state.follows(one.generation)])
        emptied = [
            dataclasses.replace(one, frozen="a table lost a partition while the sink was away")
            if one.followed and self.seeding.spec(one).tables() & set(found.emptied)
            else one
            for one in marked
        ]
        self._save(dataclasses.replace(self.state, generations=tuple(emptied)))

    def freeze_unknown(self) -> None:
        """Follow none whose schema is not at hand: it is not the files', and was not read from the sink."""
        why = "the schema file is another now, and what it was cannot be read from the sink"
        generations = (
            one if self.seeding.is_known(one) or not one.followed else dataclasses.replace(one, frozen=why)
            for one in self.state.generations
        )
        self.state = dataclasses.replace(self.state, generations=tuple(generations))

    def carry_out(self, orders: Sequence[ControlRequest]) -> None:
        """Do what is asked for, between two batches: no query runs.

        Raises:
            HeadraceError: what the cluster does not bear.
        """
        self._reload()
        done = [order for order in orders if self._obeyed(order)]
        self._save(self.state)
        self.drop_doomed()
        self._forget(done)

    def obey(self, orders: Sequence[ControlRequest]) -> list[ControlRequest]:
        """The first part of `carry_out`, beside the running query, which does not know of it yet.

        What is made is not to be filled, and what is doomed not to be dropped, before it does. Returns the
        orders that are done by then.

        Raises:
            HeadraceError: as `carry_out`, which may be called for the same orders then.
        """
        self._reload()
        done = [order for order in orders if self._obeyed(order)]
        for attempt in patiently():
            with attempt:
                self._meta.keep(self.state.generations)
        if done:
            reach("made")
        return done

    def obeyed(self, done: Sequence[ControlRequest]) -> None:
        """The query knows of it: forget the orders."""
        if done:
            reach("joined")
        self._forget(done)

    def covers(self, position: Lsn) -> bool:
        """Whether it is noted that all before `position` is applied; not, where the cluster is away."""
        try:
            found = self._meta.load()
        except HeadraceError as error:
            if error.retry is not Retry.BACK_OFF:
                raise
            return False
        return found is not None and found.reached >= position

    def altered(self, emptied: Collection[TableName], catalog: str) -> None:
        """Partitions have come or gone: renew what lost rows, and note what is known of the catalog now.

        Raises:
            HeadraceError: what either side does not bear; it can be done again.
        """
        self._reload()
        self.seeding.renew(self.written, emptied, self.state.reached)
        self._meta.save(dataclasses.replace(self.state, catalog=catalog))
        self.state = dataclasses.replace(self.state, catalog=catalog)

    def prepare(self, filled: Collection[GenerationState]) -> None:
        """Do at once for all of these what `complete` would do for each; what fails is left to it."""
        new = [one for one in filled if one.generation not in self._finished]
        if len(new) > 1:
            with contextlib.suppress(HeadraceError):
                self.seeding.finish_all(new)
                self._finished |= {one.generation for one in new}

    def complete(self, one: GenerationState, written: int) -> None:
        """It is filled and compared: let readers see it. The query may run.

        Args:
            written: how many documents its filling wrote; the stream may have written others before.
        """
        before = self.state.served(one.index)
        if one.generation not in self._finished:
            self.seeding.finish(one)
        self._finished.discard(one.generation)
        held = self.seeding.holds(one)
        documents = written if held is None else held
        reach("filled")
        self._serve(one)
        reach("swapped")
        self._meta.keep(self.state.generations)
        is_first = before is None or before.generation == one.generation
        if is_first:  # what readers saw until now is of a deployment that was torn down
            self.seeding.drop_strangers(one.index, (*self.state.of(one.index), *self._doomed))
        self.seeding.forget_progress(one)
        self._board.index(
            one.index,
            documents=documents,
            building=None,
            documents_per_second=None,
            seconds_left=None,
            error=None,
        )
        self.tell(one.index)
        project = self._inspection.project
        self._board.report.done(f"{project.label}{project.prefix}{one.index}: {documents:,} documents")
        if before is not None and before.frozen:
            self._board.report.done(
                f"{project.label}{one.index}: readers see {one.generation}, which is followed again"
            )

    def give_up(self, given: Collection[GenerationState], reason: str) -> None:
        """Follow these no longer, so that the others can go on; no query runs."""
        self._reload()
        marked = [dataclasses.replace(one, frozen=reason) for one in given]
        self._save(self.state.changed(*marked))
        for one in marked:
            what = "is not built" if one.building else "is frozen, not kept"
            label = self._inspection.project.label
            self._board.report.warning(f"{label}{one.index}: {one.generation} {what}: {reason}")
            self._board.index(one.index, building=None, error=reason)

    def replaced(self) -> list[GenerationState]:
        """Those that are not what was written any more, frozen; looked for now and then.

        The cluster is asked in a thread: nobody waits here for one that hangs; of one that does not answer
        is told elsewhere.
        """
        self._watch.look(self.state.generations)
        self._tell_altered(self._watch.altered())
        self._tell_faults(self._watch.faults)
        lost = self._watch.lost(self.written)
        return [dataclasses.replace(generation, frozen=why) for generation, why in lost]

    def _tell_altered(self, altered: Collection[str]) -> None:
        for what in altered:
            self._board.report.warning(f"{self._inspection.project.label}{what}; set right")

    def _tell_faults(self, found: Mapping[str, str]) -> None:
        """Tell of aliases that somebody has altered; a start leads them where they belong."""
        for index in self._faults.keys() - found.keys():
            self._board.index(index, error=None)
        for index, fault in found.items():
            if self._faults.get(index) != fault:
                self._board.report.warning(f"{self._inspection.project.label}{index}: {fault}")
                self._board.index(index, error=fault)
        self._faults = found

    def build_anew(self, frozen: Collection[GenerationState]) -> None:
        """Follow these no longer, and build their indexes anew; no query runs.

        Raises:
            HeadraceError: what the cluster does not bear.
        """
        self._reload()
        self.state = self.state.changed(*frozen)
        self._warn_of(frozen)
        for index in {one.index for one in frozen}:
            self._carry_out(index, succeed(self.state.of(index), self.seeding.hashes[index]))
            self.tell(index)
        self._save(self.state)
        self.drop_doomed()

    def drop_doomed(self) -> None:
        """Delete what nobody needs any more; no query runs that was planned with it.

        Raises:
            HeadraceError: what the cluster does not bear; what is left is tried again with the next call.
        """
        while self._doomed:
            self.seeding.drop(self._doomed[0])
            del self._doomed[0]

    def tell(self, index: str) -> None:
        """Tell the board how this index stands."""
        served, found = self.state.served(index), self.state.of(index)
        building = next((one.generation for one in found if one.building and one.followed), None)
        if served is not None:
            phase = IndexPhase.LIVE if served.followed else IndexPhase.BACKFILLING
            error = f"what readers see is frozen: {served.frozen}" if served.frozen else None
            self._board.index(
                index, phase=phase, generation=served.generation, building=building, error=error
            )
        elif found:
            backfilling = IndexPhase.BACKFILLING
            self._board.index(index, phase=backfilling, generation=found[-1].generation, building=building)

    def _left(self, published: Mapping[str, int]) -> frozenset[str]:
        """The tables that were not in the publication for a while."""
        known = self.state.published.items()
        return frozenset(table for table, member in known if published.get(table, member) != member)

    def _marked(
        self, one: GenerationState, left: frozenset[str], found: SchemaDrift, lost: str = ""
    ) -> GenerationState:
        """Frozen, where changes are lost to it, or go elsewhere, or its plan is not right any more."""
        if not one.followed or not self.seeding.is_known(one):
            return one
        usage = self._inspection.usage(self.seeding.name_of(one))
        if lost:
            why = lost
        elif left & {str(table) for table in usage}:
            why = "a table had left the publication, its changes are lost"
        elif said := dict.fromkeys(each.what for each in found.wrong if each.concerns(usage)):
            why = "; ".join(said)
        else:
            return one
        return dataclasses.replace(one, frozen=why)

    def _warn_of(self, frozen: Collection[GenerationState]) -> None:
        """Say why what readers see is built anew."""
        for one in frozen:
            if one.published:
                self._board.report.warning(
                    f"{self._inspection.project.label}{one.index}: {one.frozen}; seeding anew"
                )

    def _forget(self, done: Sequence[ControlRequest]) -> None:
        for order in done:
            for attempt in patiently():
                with attempt:
                    self._orders.done(order)
            self.tell(order.index)

    def _obeyed(self, order: ControlRequest) -> bool:
        """Whether the order is to be taken away: it is done, or can never be; else it is tried again."""
        try:
            found = obey(self.state.of(order.index), self.seeding.hashes[order.index], order)
            self._carry_out(order.index, found)
        except HeadraceError as error:
            self._board.report.warning(f"{order.what} {order.index}: {error}")
            self._board.index(order.index, error=error.cause)
            return error.retry is not Retry.BACK_OFF
        return True

    def _carry_out(self, index: str, found: Next) -> None:
        self._doom(found.drop)
        if found.serve is not None:
            self._serve(found.serve)
            self._board.report.done(f"{index}: readers see {found.serve.generation}")
        if found.make:
            why = why_made(self.state.of(index), found.order)
            made = self.seeding.make(index, self.as_of, self.state.reached, found.order)
            self.state = self.state.changed(made)
            self._board.report.info(
                f"{self._inspection.project.label}{index}: builds {made.generation}: {why}"
            )

    def _serve(self, one: GenerationState) -> None:
        """Swap the alias, and note it; what is superseded waits to be dropped."""
        before = self.state.served(one.index)
        self.seeding.serve(one)
        seeded = self.state.reached if one.seeded_at is None else one.seeded_at
        state = self.state
        if before is not None and before.generation != one.generation:
            state = state.changed(dataclasses.replace(before, published=False))
        self.state = state.changed(dataclasses.replace(one, seeded_at=seeded, published=True))
        name = None if before is None else before.generation
        self._doom(superseded(self.state.of(one.index), name, self._keep))

    def _doom(self, given: Collection[GenerationState]) -> None:
        if not self._doomed:
            self._doomed_since = time.monotonic()
        self._doomed += given
        self.state = self.state.without(*(one.generation for one in given))

    def _reload(self) -> None:
        """What the last batch has noted."""
        for attempt in patiently():
            with attempt:
                found = self._meta.load()
        assert found is not None, "it is there while a run lives"
        self.state = dataclasses.replace(found, generations=self.state.generations)

    def _save(self, state: PipelineState) -> None:
        for attempt in patiently():
            with attempt:
                self._meta.save(state)
        self.state = state
