"""What did Spark fail of? Our own error is somewhere in its text; anything else is Spark's."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind, without_values

_LENGTH = 300


def headrace_error(error: Exception) -> HeadraceError:
    """The error of ours that made Spark fail, or SPARK with Spark's first line."""
    text = str(error)
    found = HeadraceError.find(text)
    if found is not None:
        return found
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), None)
    said = last or (lines[0] if lines else repr(error))
    return HeadraceError(
        Kind.SPARK,
        f"Spark stopped: {without_values(said[:_LENGTH])}",
        "Run again with --log-level debug to see its log.",
        f"Spark stopped: {said[:_LENGTH]}",
    )


@contextmanager
def told_alone(*, whole: bool = False) -> Iterator[None]:
    """An error of ours leaves without what caused it: in a user's session it is the last of a short trace.

    Args:
        whole: whoever reads it may read the rows, too: with the values that it quotes.
    """
    try:
        yield
    except HeadraceError as error:
        if whole and error.detail:
            raise HeadraceError(error.kind, error.detail, error.remedy) from None
        if error.kind is Kind.INTERNAL:
            raise error from None
        raise copy.copy(error) from None  # the same without our own calls, which Spark prints twice
