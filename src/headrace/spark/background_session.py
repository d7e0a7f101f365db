"""Open a Spark session beside other work, and replace it where its processes were lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from headrace.spark.session import LocalSpark


class BackgroundSpark:
    """A session that opens and closes in a thread of its own; a context manager that waits until it is open.

    Args:
        open_: opens a session.
    """

    def __init__(self, open_: Callable[[], contextlib.AbstractContextManager[LocalSpark]]) -> None:
        self._open = open_
        self._held = contextlib.ExitStack()
        # One thread alone, so that a session never opens while another one closes.
        self._thread = ThreadPoolExecutor(1, "headrace spark")
        self._opened: Future[LocalSpark] | None = None

    def begin(self) -> None:
        """Begin to open the session, where that has not begun."""
        if self._opened is None:
            self._opened = self._thread.submit(self._renew)

    @property
    def current(self) -> LocalSpark:
        """The session; it is waited for.

        Raises:
            HeadraceError: as `open_`; whoever needs it next tries again.
        """
        self.begin()
        assert self._opened is not None
        try:
            return self._opened.result()
        except Exception:
            self._opened = None
            raise

    def renew(self) -> None:
        """Stop the session and open another.

        Raises:
            HeadraceError: as `current`.
        """
        self._opened = self._thread.submit(self._renew)
        _ = self.current

    def close(self) -> None:
        """Stop the session, also one that is just being opened; idempotent."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        _ = self.current
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened = None
            self._thread.submit(self._held.__exit__, kind, value, trace).result()
        self._thread.shutdown()

    def _renew(self) -> LocalSpark:
        self._held.close()
        return self._held.enter_context(self._open())
