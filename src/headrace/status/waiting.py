"""Parse requests to `/wait`, and build the answers.

Pure. The number of waiting requests and their time are bounded, because the page is open to everyone who
reaches the address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.model.lsn import Lsn, format_lsn, parse_lsn

SHORTEST_SECONDS = 0.1
LONGEST_SECONDS = 300.0
"""A client that wants to wait longer sends another request."""
_SECONDS = 60.0
# `?searchable` alone means yes.
_WORDS = {"true": True, "1": True, "": True, "false": False, "0": False}
_KNOWN = ("lsn", "timeout", "searchable")


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """A request: `lsn` is None for the end of the log as it is now; `timeout` in seconds."""

    lsn: Lsn | None = None
    timeout: float = _SECONDS
    searchable: bool = False


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """How far a waiting request has come.

    Attributes:
        lsn: the position that is waited for; None where the server has not been asked yet.
        applied: everything before it is in the documents; None where not known.
        error: why the run cannot check its position; None where it can.
        done: whether what is waited for is there.
    """

    lsn: Lsn | None = None
    applied: Lsn | None = None
    error: str | None = None
    done: bool = False


class Waits(Protocol):
    """Looks how far the documents are; safe from any thread, and returns at once."""

    def look(self, before: WaitProgress, *, searchable: bool, waited: float) -> Future[WaitProgress]:
        """Return a future with how far a request has come by then.

        With `searchable` it is done once a search finds what is applied. `waited` are the seconds since the
        request: who waits for long has the pipeline asked for the position.
        """
        ...


def parse_request(parameters: Mapping[str, str]) -> WaitRequest:
    """Parse the query string of a request.

    Raises:
        ValueError: a parameter is unknown or invalid; its text says why.
    """
    unknown = sorted(set(parameters) - set(_KNOWN))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known here; known are {', '.join(_KNOWN)}")
    lsn = parse_lsn(parameters["lsn"]) if "lsn" in parameters else None
    word = parameters.get("searchable", "false").lower()
    if word not in _WORDS:
        raise ValueError(f"searchable is true or false, not {word!r}")
    return WaitRequest(lsn, _seconds(parameters.get("timeout")), _WORDS[word])


def _seconds(text: str | None) -> float:
    if text is None:
        return _SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise ValueError(f"timeout is {SHORTEST_SECONDS:g} to {LONGEST_SECONDS:.0f} seconds, not {text!r}")
    return seconds


def answer_body(progress: WaitProgress, seconds: float) -> dict[str, Any]:
    """Return the body of the answer after `seconds`; unknown values are null."""
    behind = None
    if progress.lsn is not None and progress.applied is not None:
        behind = max(0, progress.lsn - progress.applied)
    return {
        "done": progress.done,
        "lsn": _text(progress.lsn),
        "applied": _text(progress.applied),
        "behind_bytes": behind,
        "seconds": round(seconds, 3),
        "error": progress.error,
    }


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)
