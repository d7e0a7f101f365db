"""`headrace wait`: when is a commit in the documents?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import terminal
from headrace.cli.slots import size
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.pipeline.applied_position import Applied, check_filled, why_behind
from headrace.pipeline.project import open_place


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


def _behind(applied: Applied, slot: str, awaited: Lsn, timeout: float) -> HeadraceError:
    state = applied.state()
    why, remedy = why_behind(applied, state, awaited)
    return HeadraceError(
        Kind.BEHIND,
        f"{format_lsn(awaited)} is not applied after {timeout:g} s: the documents of the slot {slot!r} stand "
        f"at {format_lsn(state.applied)}, {size(max(0, awaited - state.applied))} before it; {why}",
        remedy,
    )
