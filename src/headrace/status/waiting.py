"""What can be asked of `/wait`, and what does it answer?

Pure. Who waits is counted and bounded in time: the page is open to everyone who reaches the address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.model import Lsn, format_lsn, parse_lsn

SHORTEST_SECONDS = 0.1
LONGEST_SECONDS = 300.0
"""A client that wants to wait longer asks again."""
_SECONDS = 60.0
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
    """How far somebody who waits has come.

    Attributes:
        lsn: what is waited for; None where the server has not been asked yet.
        applied: everything before it is in the documents; None where not known.
        trouble: what keeps the run from looking; None where nothing does.
    """

    lsn: Lsn | None = None
    applied: Lsn | None = None
    trouble: str | None = None


class Waits(Protocol):
    """Knows when a place in the log is applied; every method is safe from any thread and returns at once."""

    def ask(self, lsn: Lsn | None, *, searchable: bool) -> Future[WaitProgress] | None:
        """Done once everything before `lsn` is applied, and with `searchable` found by a search.

        None where too many wait already. Who does not wait any more cancels it.
        """
        ...

    def progress(self, asked: Future[WaitProgress]) -> WaitProgress:
        """How far it has come by now."""
        ...


def read_request(parameters: Mapping[str, str]) -> WaitRequest:
    """What the query string of a request asks for.

    Raises:
        ValueError: it cannot be read; says why.
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


def answer(progress: WaitProgress, seconds: float, *, done: bool) -> dict[str, Any]:
    """The body of the answer after `seconds`; what is not known is null."""
    behind = None
    if progress.lsn is not None and progress.applied is not None:
        behind = max(0, progress.lsn - progress.applied)
    return {
        "done": done,
        "lsn": _text(progress.lsn),
        "applied": _text(progress.applied),
        "behind_bytes": behind,
        "seconds": round(seconds, 3),
        "trouble": progress.trouble,
    }


def _text(lsn: Lsn | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)
