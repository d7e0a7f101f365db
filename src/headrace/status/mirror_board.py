"""Show what a mirror does with each of its tables: as JSON, as metrics, and whether it follows."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from starlette.applications import Starlette

from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn, format_lsn
from headrace.status.metrics import gauge, single, states
from headrace.status.pages import PublicServer, pages
from headrace.status.phases import Phase

TablePhase = Literal["live", "loading", "waiting"]


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What a mirror does with one table.

    Attributes:
        phase: it is followed, is being read, or waits.
        complete: up to where (bytes) the lake has it; None: it is not loaded.
        reason, remedy: why it waits, and what to do.
        next_try: when it is tried again (Unix time).
    """

    phase: TablePhase
    complete: Lsn | None = None
    reason: str | None = None
    remedy: str | None = None
    next_try: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        complete = None if self.complete is None else format_lsn(self.complete)
        return asdict(self) | {"complete": complete}


@dataclass(frozen=True, slots=True)
class MirrorView:
    """A mirror at one moment.

    Attributes:
        slot: its slot.
        phase: what it does.
        tables: what it does with each table, by name.
        error: what is tried again, or ended it; None: nothing.
        started: when it began (Unix time).
    """

    slot: str
    phase: Phase
    tables: dict[str, TableStatus]
    error: str | None
    started: float

    @property
    def unready(self) -> str | None:
        """Why the lake is not kept up to date; None: it is, except for tables that wait."""
        if self.phase is Phase.LIVE:
            return None
        return self.error or f"the mirror is {self.phase.value}"

    def to_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return {
            "phase": self.phase.value,
            "ready": self.unready is None,
            "reason": self.unready,
            "slot": self.slot,
            "last_error": self.error,
            "tables": {name: table.to_json() for name, table in sorted(self.tables.items())},
        }


class MirrorBoard:
    """Holds what a mirror says of itself; written by the mirror, read by the server's threads.

    Args:
        slot: the mirror's slot.
    """

    def __init__(self, slot: str) -> None:
        self._lock = threading.Lock()
        self._view = MirrorView(slot, Phase.STARTING, {}, None, time.time())

    def view(self) -> MirrorView:
        """Return the mirror as of now."""
        return self._view

    def show(
        self, phase: Phase, tables: dict[str, TableStatus] | None = None, error: HeadraceError | None = None
    ) -> None:
        """Replace what is shown; `tables` of None stay as they are."""
        with self._lock:
            kept = self._view.tables if tables is None else dict(tables)
            said = None if error is None else str(error)
            # A new value each time: a reader keeps one that nobody changes under it.
            self._view = replace(self._view, phase=phase, tables=kept, error=said)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, as of now: the board is a collector of Prometheus' library."""
        view = self.view()
        tables, phases = sorted(view.tables.items()), get_args(TablePhase)
        yield states(view.phase)
        yield single("headrace_ready", "1 while the mirror follows.", view.unready is None)
        yield single("headrace_start_time_seconds", "When the run began, in Unix time.", view.started)
        yield gauge(
            "headrace_mirror_table",
            "1 for the state that a mirrored table is in.",
            ("table", "state"),
            (((name, phase), table.phase == phase) for name, table in tables for phase in phases),
        )
        yield gauge(
            "headrace_mirror_table_position_bytes",
            "Up to where in the write-ahead log the lake has a mirrored table.",
            ("table",),
            (((name,), table.complete) for name, table in tables),
        )


class MirrorServer(PublicServer):
    """Serve `/healthz`, `/readyz`, `/status` and `/metrics` of a mirror, between enter and exit.

    Args:
        board: what to show.
        address: `HOST:PORT`, the only address to listen on; port 0 takes a free one.
        hosts: names that the pages are asked by, with a port or for any.

    Raises:
        HeadraceError: USAGE for an address that is invalid, or that is not this machine's.
    """

    def __init__(self, board: MirrorBoard, address: str, hosts: Collection[str] = ()) -> None:
        registry = CollectorRegistry()
        registry.register(board)
        routes = pages(lambda: board.view().unready, lambda: board.view().to_json(), registry)
        super().__init__(Starlette(routes=routes), address, hosts, frozenset({"/status"}))
