"""Turn Spark's failures into errors: Headrace's own error is somewhere in Spark's text."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind, without_values

_LENGTH = 300


def headrace_error(error: Exception) -> HeadraceError:
    """Return Headrace's error that made Spark fail, or SPARK with Spark's own line."""
    text = str(error)
    found = HeadraceError.find(text)
    if found is not None:
        return found
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), None)
    message = last or (lines[0] if lines else repr(error))
    return HeadraceError(
        Kind.SPARK,
        f"Spark stopped: {without_values(message[:_LENGTH])}",
        "Run again with --log-level debug to see its log.",
        f"Spark stopped: {message[:_LENGTH]}",
    )


@contextmanager
def short_traceback(*, with_values: bool = False) -> Iterator[None]:
    """Raise Headrace's errors without their causes, for a short trace in the user's session.

    Args:
        with_values: include the values that the error quotes: its reader may read the rows too.
    """
    try:
        yield
    except HeadraceError as error:
        if with_values and error.detail:
            raise HeadraceError(error.kind, error.detail, error.remedy) from None
        if error.kind is Kind.INTERNAL:
            raise error from None
        raise copy.copy(error) from None  # without Headrace's own calls, which Spark prints twice
