"""Report a pipeline's progress and warnings to a log, to a terminal, or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Protocol


class Reporter(Protocol):
    """Receives what a pipeline does, as sentences for people; called from several threads."""

    def info(self, text: str) -> None:
        """Report what is being done."""
        ...

    def done(self, text: str) -> None:
        """Report what has been done."""
        ...

    def warning(self, text: str) -> None:
        """Report a problem that does not stop the pipeline."""
        ...

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Report what is being done while the context lasts."""
        ...

    def progress(self, title: str, total: int) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Yield a function to be called with the number of `total` that are done."""
        ...


class SilentReporter:
    """A reporter that ignores everything."""

    def info(self, text: str) -> None:
        """Do nothing."""

    def done(self, text: str) -> None:
        """Do nothing."""

    def warning(self, text: str) -> None:
        """Do nothing."""

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Do nothing."""
        del text
        return contextlib.nullcontext()

    def progress(self, title: str, total: int) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Do nothing."""
        del title, total
        return contextlib.nullcontext(lambda _done: None)


class LoggingReporter(SilentReporter):
    """A reporter that writes to a logger: work at level INFO, warnings at WARNING, no progress."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, text: str) -> None:
        """Log what is being done."""
        self._logger.info("%s", text)

    def done(self, text: str) -> None:
        """Log what has been done."""
        self._logger.info("%s", text)

    def warning(self, text: str) -> None:
        """Log a warning."""
        self._logger.warning("%s", text)

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Log what is being done, once."""
        self._logger.info("%s", text)
        return contextlib.nullcontext()
