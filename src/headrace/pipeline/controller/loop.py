"""Go round: look, decide, act; remember nothing but how often an action has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Kind, Retry
from headrace.pipeline.controller.act import act
from headrace.pipeline.controller.actions import UNIT_STEPS, Action, EndRun, UnitAction, is_building
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.ports import Ports
from headrace.pipeline.controller.reconcile import is_due, reconcile
from headrace.pipeline.controller.world import Failures, World

# Seconds between two tries of what may pass by itself.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Seconds between two tries of a unit that somebody has to mend: each costs a backfill.
_FIRST_UNIT_PAUSE, _LONGEST_UNIT_PAUSE = 60.0, 3600.0
_CALM_SECONDS = 300.0
_ALTERED = frozenset({Kind.SCHEMA_CHANGED, Kind.REPLICA_IDENTITY})

Look = Callable[[Mapping[str, Failures]], tuple[World, Desired]]


@dataclass(eq=False, slots=True)
class Controller:
    """Leads one deployment from what is to what should be.

    Args:
        look: asks everything, within time limits.
        ports: what actions are carried out on.
        tell: told each action before it is carried out.
        report: told what came of it: the error where it has failed, else None.
        clock: seconds.

    Attributes:
        failures: by an action's key, how often it has failed in a row.
        has_acted: whether the last round has done anything.
        seen: what the last round has decided on; None before the first.
    """

    look: Look
    ports: Ports
    tell: Callable[[Action], None]
    report: Callable[[Action, HeadraceError | None], None]
    clock: Callable[[], float]
    failures: dict[str, Failures] = field(default_factory=dict, init=False)
    has_acted: bool = field(default=False, init=False)
    seen: tuple[World, Desired] | None = field(default=None, init=False)

    def go_round(self) -> EndRun | None:
        """Look once and act on it; return why the run ends, where it does."""
        self.seen = world, desired = self.look(self.failures)
        wanted = reconcile(world, desired)
        self._forget_what_is_over(wanted)
        due = [action for action in wanted if is_due(world, action)]
        self.has_acted = bool(due)
        for action in due:
            self.tell(action)
            if isinstance(action, EndRun):
                return action
            # What follows was decided on the assumption that this action succeeds.
            if not self._carry_out(action):
                break
        return None

    def _forget_what_is_over(self, wanted: Sequence[Action]) -> None:
        """Forget the failures of actions that nothing wants any more."""
        now, keys = self.clock(), {action.key for action in wanted}
        for key, failed in list(self.failures.items()):
            # What was begun well may fail late, as a query does, and what cannot be asked is not decided.
            calm = 0.0 if key.startswith(UNIT_STEPS) else _CALM_SECONDS
            if key not in keys and now >= failed.next_try + calm:
                del self.failures[key]

    def _carry_out(self, action: Action) -> bool:
        """Carry out an action; return whether the next one may follow.

        A unit fails alone; after a failure of what all share the next round decides again.
        """
        try:
            act(action, self.ports)
        except HeadraceError as error:
            self._count(action.key, error, action.order_id)
            self.report(action, error)
            return isinstance(action, UnitAction)
        self.report(action, None)
        # Not always its own key: that an index was created does not prove that it can be filled.
        self.failures.pop(action.proves, None)
        if action.delays is not None:
            self._count(*action.delays)
        return True

    def _count(self, key: str, error: HeadraceError, order: str = "") -> None:
        now, before = self.clock(), self.failures.get(key)
        times, since = (1, now) if before is None else (before.times + 1, before.since)
        self.failures[key] = Failures(error, times, now + pause(key, error, times), since, order)


def pause(key: str, error: HeadraceError, times: int) -> float:
    """Return the seconds before the next try of an action, after so many failures in a row.

    What was built of an altered table is built again at once, and then more and more seldom.
    """
    first, longest = _FIRST_PAUSE, _LONGEST_PAUSE
    if is_building(key) and error.retry is Retry.NEVER:
        first, longest = (_FIRST_PAUSE if error.kind in _ALTERED else _FIRST_UNIT_PAUSE), _LONGEST_UNIT_PAUSE
    # Capped before the power: after days of failures it would be no float any more.
    return min(first * 2.0 ** min(times - 1, 16), longest)
