"""Make what was just written searchable, in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable

from headrace.errors import HeadraceError
from headrace.sinks.opensearch.client import Client, join_names, path

_SHARE = 0.5
"""The share of the time in which the cluster refreshes for us: each refresh makes a segment."""
_END_SECONDS = 1.0
_LENIENT: dict[str, str | int] = {"ignore_unavailable": "true"}


class EagerRefresh:
    """Refreshes indexes soon after it is asked to; the writer does not wait for it.

    Requests during a refresh, and for its length afterwards, are answered together by the next one. A refresh
    that fails is left to the index's own interval.

    Args:
        client: stays the caller's: `close` does not close it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._targets: set[str] = set()
        self._closing = False
        self._thread: threading.Thread | None = None

    def request(self, targets: Iterable[str]) -> None:
        """Ask for a refresh of aliases or indexes."""
        with self._changed:
            self._targets.update(targets)
            self._changed.notify()
        if self._thread is None and self._targets:
            self._thread = threading.Thread(target=self._run, name="headrace refresh", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End; a refresh that is under way is waited for only a moment."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while targets := self._take():
            began = time.monotonic()
            # Nothing is lost: the index refreshes itself at its interval.
            with contextlib.suppress(HeadraceError):
                for names in join_names(sorted(targets)):
                    self._client.call("POST", path(names, "_refresh", query=_LENIENT))
            pause = (time.monotonic() - began) * (1 / _SHARE - 1)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause)

    def _take(self) -> set[str]:
        """Wait for targets; none: it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._targets)
            taken, self._targets = self._targets, set()
        return set() if self._closing else taken
