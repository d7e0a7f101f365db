"""`headrace wait`: when is a commit in the documents?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.applied import Applied
from headrace.cli.project import open_place
from headrace.cli.slots import size
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch import PipelineState


def wait_applied(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    *,
    lsn: str | None,
    searchable: bool,
    timeout: float,
    sink: str | None = None,
) -> None:
    """Return once everything before `lsn` is in the documents of every index.

    Args:
        lsn: as PostgreSQL prints it; None is the end of the server's log now.
        searchable: refresh the indexes then, so that a search finds it.
        timeout: seconds.
        sink: in whose documents; None is the primary's.

    Raises:
        HeadraceError: BEHIND where it is not within `timeout`; SLOT_UNKNOWN where the cluster does not know
            the deployment; USAGE, CONFIG, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    wanted = None if lsn is None else wished_lsn(lsn)
    began = time.monotonic()
    here, name, prefix = open_place(config, environ, slot, sink)
    with Applied(here, name, prefix) as applied:
        awaited = applied.end_of_log() if wanted is None else wanted
        check_filled(applied.check(), name)
        with terminal.working(f"waiting for {format_lsn(awaited)} …"):
            state = applied.wait(awaited, max(0.0, timeout - (time.monotonic() - began)))
        if state is None:
            raise _behind(applied, name, awaited, timeout)
        if searchable:
            applied.refresh(state)
    found = "applied, and found by a search" if searchable else "applied"
    terminal.done(f"{format_lsn(awaited)} is {found}, after {time.monotonic() - began:.1f} s")


def check_filled(state: PipelineState, slot: str) -> None:
    """Make sure that a run has taken a further sink up.

    Raises:
        HeadraceError: SLOT_UNKNOWN.
    """
    _, _, sink = slot.partition("/")
    if sink and not state.generations:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"no run has taken the sink {sink!r} up yet",
            "Start `headrace run`: it fills the sink first.",
        )


def wished_lsn(text: str) -> Lsn:
    """The place that somebody has written.

    Raises:
        HeadraceError: USAGE.
    """
    try:
        return parse_lsn(text)
    except ValueError as error:
        raise HeadraceError(
            Kind.USAGE, f"{text!r} is no place in the log", "Write it as PostgreSQL does, like 16/B374D848."
        ) from error


def why_behind(applied: Applied, state: PipelineState, awaited: Lsn) -> tuple[str, str]:
    """Why something is not applied yet, as far as can be seen from outside, and what helps."""
    slot = applied.slot()
    if not state.seeded:
        where = f"says `live` of the sink {applied.sink!r}" if applied.sink else "says that it is ready"
        return "the indexes are being seeded", f"Wait until /status of the run {where}."
    if state.reached >= awaited:
        is_read = slot is not None and slot.reader is not None
        return applied.lacking(), "Wait longer." if is_read else "Start `headrace run`."
    if slot is None:
        return "the slot is gone", "Look at `headrace check`."
    if slot.reader is None:
        return f"nobody reads the slot {slot.name!r}", "Start `headrace run`."
    if slot.current < awaited:
        return f"the server itself stands at {format_lsn(slot.current)}", "Correct --lsn."
    return (
        "the pipeline is behind",
        "Wait longer with --timeout; /status of the run and `headrace lag` say more.",
    )


def _behind(applied: Applied, slot: str, awaited: Lsn, timeout: float) -> HeadraceError:
    state = applied.state()
    why, remedy = why_behind(applied, state, awaited)
    return HeadraceError(
        Kind.BEHIND,
        f"{format_lsn(awaited)} is not applied after {timeout:g} s: the documents of the slot {slot!r} stand "
        f"at {format_lsn(state.applied)}, {size(max(0, awaited - state.applied))} before it; {why}",
        remedy,
    )
