"""Turn Spark's failures into errors: Headrace's own error is somewhere in Spark's text."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from headrace.errors import HeadraceError, Kind, find_concerns, without_values

_LENGTH = 300
_LOST = re.compile(
    r"Python worker exited unexpectedly"
    r"|java\.(?:io|net|nio)\.[\w.]*Exception[^\n]*\n"
    r"(?:\s+at (?!org\.apache\.spark)[^\n]*\n)*"
    r"\s+at org\.apache\.spark\.(?:api|sql\.execution|sql\.execution\.datasources\.v2)\.python\."
)
"""Spark's words for a Python process that is gone, or a broken socket where Spark talks to one."""
_LATE = re.compile(r"Python worker failed to connect back|waiting for the Python worker to connect back")
"""Spark's words for a Python process that did not start within ten seconds."""
_STARTED_LATE = "Spark waited ten seconds in vain for a Python process to start: the machine is very busy"
_LESS = ("at ", "Suppressed: ")
_ENDED = "a Python process of Spark has ended; if the system killed it for want of memory, its log says so"
_ROOM = "If it comes again, give the machine more memory, or Spark fewer tasks at once (--master local[2])."


def headrace_error(error: Exception) -> HeadraceError:
    """Return Headrace's error that made Spark fail, else WORKER_LOST or SPARK.

    Raises:
        Py4JError, OSError: the JVM has ended, so that it cannot say what was wrong.
    """
    text = str(error)
    # An error crosses two processes as text; our line in it says which one it was.
    found = HeadraceError.find(text)
    if found is not None:
        return found
    parts = (text, *_traces(error))
    for words, cause in ((_LATE, _STARTED_LATE), (_LOST, _ENDED)):
        if any(words.search(part) for part in parts):
            return HeadraceError(Kind.WORKER_LOST, cause, _ROOM)
    message = (_last_message(text) or repr(error))[:_LENGTH]
    return HeadraceError(
        Kind.SPARK,
        f"Spark stopped: {without_values(message)}",
        "Run again with --log-level debug to see its log.",
        f"Spark stopped: {message}",
    ).concerning(**find_concerns(text))


def _last_message(text: str) -> str | None:
    """Return the line of Spark's text that says most: the last error's, which is the first cause."""
    # What the JVM suppressed came after the cause.
    stripped = (line.strip().removeprefix(": ") for line in text.splitlines())
    lines = [line for line in stripped if line and not line.startswith(_LESS)]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return next(iter([*reversed(errors), *lines]), None)


def _traces(error: Exception) -> Iterator[str]:
    """Yield the JVM's stack traces of an error and its causes, which its text leaves out."""
    cause: object = error
    while isinstance(cause, CapturedException):
        yield str(cause._stackTrace)  # noqa: SLF001 - it has no public name
        cause = cause._cause  # noqa: SLF001


@contextmanager
def spark_failures() -> Iterator[None]:
    """Raise what Spark reports as `headrace_error` does; the end of the JVM itself passes as it is."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise headrace_error(error) from error


@contextmanager
def short_traceback(*, with_values: bool = False) -> Iterator[None]:
    """Raise Headrace's errors without their causes, for a short trace in the user's session.

    Args:
        with_values: include the values that the error quotes: its reader may read the rows too.
    """
    try:
        yield
    except HeadraceError as error:
        shown = error
        if with_values and error.detail:
            shown = HeadraceError(error.kind, error.detail, error.remedy).concerning(
                tables=error.tables, units=error.units
            )
        elif error.kind is not Kind.INTERNAL:
            shown = copy.copy(error)  # without Headrace's own calls, which Spark prints twice
        if line := shown.transport_line():
            shown.add_note(line)  # the last line of the trace, which is all that reaches the driver
        raise shown from None
