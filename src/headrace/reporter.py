"""Who is told what a pipeline does: a person at a terminal, a log, or nobody."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Protocol


class Reporter(Protocol):
    """Is told what a pipeline does, in sentences for people; from several threads."""

    def info(self, text: str) -> None:
        """Tell what is being done."""
        ...

    def done(self, text: str) -> None:
        """Tell what has been done."""
        ...

    def warning(self, text: str) -> None:
        """Tell what is not as it should be, but no reason to stop."""
        ...

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Tell what is being done while the context lasts."""
        ...

    def progress(self, title: str, total: int) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Yield a function that is told how many of `total` are done."""
        ...


class SilentReporter:
    """Tells nobody."""

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
    """Tells a logger: what is done at level INFO, warnings at WARNING; progress is not told."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, text: str) -> None:
        """Log what is being done."""
        self._logger.info("%s", text)

    def done(self, text: str) -> None:
        """Log what has been done."""
        self._logger.info("%s", text)

    def warning(self, text: str) -> None:
        """Log what is not as it should be."""
        self._logger.warning("%s", text)

    def working(self, text: str) -> contextlib.AbstractContextManager[object]:
        """Log what is being done, once."""
        self._logger.info("%s", text)
        return contextlib.nullcontext()
