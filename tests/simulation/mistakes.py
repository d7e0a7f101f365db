"""Mistakes of one line each in what decides, acts or is stored: the simulation must find every one of them.

A mistake is a line of a module and what stands there instead. It is planted where the module is imported, in
a process of its own, so that what it breaks stays there.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_CONTROLLER = "headrace.pipeline.controller"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One line that is wrong.

    Attributes:
        module: the last part of its name, in the controller.
        right: a piece of text that the module has exactly once.
        wrong: what stands there instead.
    """

    module: str
    right: str
    wrong: str

    @property
    def name(self) -> str:
        """The module's full name."""
        return f"{_CONTROLLER}.{self.module}"


MISTAKES = {
    "a backfill begins before the query writes its generation": Mistake(
        "stream", "return generation.id in query.joined", "return True"
    ),
    "a query forgets the secondary sinks": Mistake(
        "stream",
        "for generation in state.generations if generation.followed)",
        "for generation in state.generations if generation.followed and not generation.sink)",
    ),
    "a query writes only what readers see": Mistake(
        "stream",
        "for generation in state.generations if generation.followed)",
        "for generation in state.generations if generation.published)",
    ),
    "a slot that somebody advanced is followed": Mistake(
        "log", "if slot.confirmed > state.applied:", "if False:"
    ),
    "a slot that is lost is followed": Mistake("log", "if slot.lost:", "if False:"),
    "a gap that the query found is forgotten with it": Mistake(
        "log", "(CloseQuery(gap.cause, gap), BeginAgain(gap.cause))", "(CloseQuery(gap.cause, gap),)"
    ),
    "a slot over its budget waits for the cluster that keeps the state": Mistake(
        "reconcile", "yield from decide_release(world, desired)", "yield from ()"
    ),
    "a sink that is away has no indexes": Mistake(
        "generations",
        "sink if isinstance(sink, SinkSeen) else None,",
        "sink if isinstance(sink, SinkSeen) else SinkSeen(),",
    ),
    "documents that were restored count as written": Mistake(
        "generations", "if Identity(generation.uuid, generation.history).is_another(found):", "if False:"
    ),
    "one unit's failure is charged to all": Mistake(
        "stream", "return generation.id in failure.units or", "return True or"
    ),
    "a lock on a table builds an index again": Mistake(
        "generations", "if held is not None and held.kind is not Kind.LOCKED:", "if held is not None:"
    ),
    "the catalog is stored while a rewritten table is followed": Mistake(
        "generations", "if stops or not is_newer", "if not is_newer"
    ),
    "rows that are lost are renewed beside a batch that has read them": Mistake(
        "generations", "if not renewed or _has_passed(catalog, state):", "if True:"
    ),
    "a table that lost rows renews nothing": Mistake(
        "generations", "catalog.published, tuple(renewed))", "catalog.published, ())"
    ),
    "a generation that is filled goes on where a table has lost rows": Mistake(
        "generations",
        "        if generation.building\n        else {TableVerdict.READ_AGAIN}",
        "        if False\n        else {TableVerdict.READ_AGAIN}",
    ),
    "an alias that leads elsewhere stays so": Mistake("generations", "    _set_alias_right,\n", ""),
    "one former generation too many is retained": Mistake(
        "generations",
        "beyond = len(retained) - (0 if view.unit.sink else view.desired.keep)",
        "beyond = len(retained) - (1 if view.unit.sink else view.desired.keep + 1)",
    ),
    "the generation that an order waits for is forgotten": Mistake(
        "generations", "if generation.published or _is_awaited(view, generation):", "if generation.published:"
    ),
    "an index is dropped while readers see it": Mistake("generations", " or index in sink.read", ""),
    "indexes that nobody needs stay": Mistake(
        "generations", "            if not is_used:", "            if False:"
    ),
    "two generations of a unit count as served": Mistake(
        "act", "dataclasses.replace(stored, published=False)", "stored"
    ),
    "what is still built is never given up": Mistake(
        "generations",
        "if generation.published or _is_awaited(view, generation):",
        "if generation.published or generation.building or _is_awaited(view, generation):",
    ),
    "readers see what the files described before": Mistake(
        "generations", "if generation.building and view.fits(generation) and", "if generation.building and"
    ),
    "a rollback is not stored as one": Mistake(
        "act",
        "_served(state, action.generation, action.pinned, action.order)",
        "_served(state, action.generation, '', action.order)",
    ),
    "after a gap everything is followed on": Mistake(
        "act", "stopped = _load(ports).frozen(action.why)", "stopped = _load(ports)"
    ),
    "a generation that is not followed any more is not stored as such": Mistake(
        "act", "frozen=action.why)", "frozen='')"
    ),
    "units that are not known yet count as removed": Mistake(
        "reconcile",
        "return  # a unit that is not known yet is no unit that was removed",
        "desired = type(desired)({})",
    ),
    "an order waits for no unit that is not known yet": Mistake(
        "orders",
        "    if desired.units is None:\n        return None\n    if order.unit is None or",
        "    if order.unit is None or desired.units is None or",
    ),
    "a failure outlives its cause": Mistake(
        "loop", "if key not in keys and now >= failed.next_try + calm:", "if False:"
    ),
    "a query that fails once is never sound again": Mistake("loop", "else _CALM_SECONDS", "else 1e9"),
    "a set-up that is refused keeps every index waiting": Mistake(
        "generations", "view.unit.index in catalog.unprepared or", "catalog.set_up or"
    ),
    "a reload waits for a set-up that is refused": Mistake("orders", " or find_hindrance(view)", ""),
    "a first start tries for ever what is refused": Mistake(
        "log", "EndRun(failed.error.cause, failed.error) if ends else step", "step"
    ),
    "a first start ends where somebody has locked a table": Mistake(
        "log", " and not isinstance(failed.error, LockTimeoutError)", ""
    ),
    "who reads the slot is not named": Mistake(
        "statuses", "if isinstance(slot, SlotSeen) and slot.reader:", "if False:"
    ),
    "a plan lacks what nobody knows the schema of": Mistake(
        "stream", "is_known = plan <= world.reads.keys()", "is_known = True"
    ),
    "a standby is a primary that is back": Mistake(
        "log", "state.timeline and not awaits_promotion(state, server)", "state.timeline"
    ),
    "what a standby lacks is a gap": Mistake(
        "log", "return server.standby and state.standby is False", "return False"
    ),
    "an unknown state counts as absent": Mistake(
        "reconcile", "return  # whatever else is decided is stored first", "state = None"
    ),
}


class _Planter(importlib.abc.MetaPathFinder):
    """Finds one module, with a line of it replaced."""

    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mistake.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert isinstance(spec.loader, SourceFileLoader)
        spec.loader = _WrongLoader(self._mistake, spec.loader)
        return spec


class _WrongLoader(SourceFileLoader):
    def __init__(self, mistake: Mistake, loader: SourceFileLoader) -> None:
        super().__init__(loader.name, loader.path)
        self._mistake = mistake

    def get_code(self, fullname: str) -> Any:
        source = self.get_data(self.path).decode()
        assert source.count(self._mistake.right) == 1, f"{self._mistake.right!r} is not there once"
        return compile(source.replace(self._mistake.right, self._mistake.wrong), self.path, "exec")


def find(name: str, schedules: int) -> tuple[int, str] | None:
    """Run schedules with a mistake until one shows it; return how many it took and what was seen.

    For a process of its own: the modules stay wrong.
    """
    sys.meta_path.insert(0, _Planter(MISTAKES[name]))
    from simulation.schedule import run  # noqa: PLC0415 - the mistake must be planted first

    for seed in range(schedules):
        violation = run(seed)
        if violation is not None:
            return seed + 1, str(violation)
    return None
