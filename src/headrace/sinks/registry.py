"""Which kinds of sinks are installed, and how does one of them become a writer?

A package offers a kind by an entry point of the group `headrace.sinks`: its name is the kind's, its object is
called with the options of the sink and gives a `DocumentWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.suggestion import meant
from headrace.sinks.base import DocumentWriter

GROUP = "headrace.sinks"

Open = Callable[[Mapping[str, Any]], DocumentWriter]
"""Makes a writer from a sink's options; it is called in every process that writes, and checks them."""


def kinds() -> list[str]:
    """The kinds that installed packages offer, by name."""
    return sorted({one.name for one in entry_points(group=GROUP)})


def open_sink(kind: str, options: Mapping[str, Any]) -> DocumentWriter:
    """A writer of that kind.

    Raises:
        HeadraceError: CONFIG for a kind that is not installed; DEPENDENCY where its module cannot be
            imported; what the kind itself raises, and SINK_BUSY for what it should not.
    """
    made = find_sink(kind)
    try:
        return made(options)
    except HeadraceError:
        raise
    except Exception as error:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"a sink of the kind {kind!r} cannot be opened: {error!r}",
            "Look into the package that offers it.",
        ) from error


def find_sink(kind: str) -> Open:
    """What makes writers of that kind.

    Raises:
        HeadraceError: CONFIG for a kind that is not installed; DEPENDENCY where its module cannot be
            imported.
    """
    found = [one for one in entry_points(group=GROUP) if one.name == kind]
    if not found:
        raise HeadraceError(
            Kind.CONFIG,
            f"no installed package offers sinks of the kind {kind!r}",
            meant(kind, kinds()) or "Install the package that does.",
        )
    return _loaded(found[0])


def _loaded(found: EntryPoint) -> Open:
    try:
        loaded: Open = found.load()
    except (ImportError, AttributeError) as error:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"the sink kind {found.name!r} ({found.value}) cannot be loaded: {error}",
            "Install its package where documents are written: on the executors too.",
        ) from error
    return loaded
