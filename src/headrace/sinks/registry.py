"""Find the kinds of sinks that installed packages offer, and open their writers.

A package offers a kind by an entry point of the group `headrace.sinks`. The entry point's name is the kind;
its object is called with the options of the sink and returns a `DocumentWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from headrace.errors import HeadraceError, Kind
from headrace.model.arrow_without_pandas import take_in_pandas
from headrace.model.suggestion import meant
from headrace.sinks.base import DocumentWriter

GROUP = "headrace.sinks"

OPENSEARCH: Final = "opensearch"
"""The kind of a search cluster, which no package has to offer."""

Open = Callable[[Mapping[str, Any]], DocumentWriter]
"""Creates a writer from a sink's options and checks them; called in every process that writes."""


def kinds() -> list[str]:
    """List the kinds that installed packages offer, sorted by name."""
    return sorted({entry_point.name for entry_point in entry_points(group=GROUP)})


def open_sink(kind: str, options: Mapping[str, Any]) -> DocumentWriter:
    """Open a writer of a kind.

    Raises:
        HeadraceError: CONFIG for a kind that is not installed; DEPENDENCY where its module cannot be
            imported; any HeadraceError of the kind itself; SINK_BUSY for any other exception of it.
    """
    open_writer = find_sink(kind)
    try:
        return open_writer(options)
    except HeadraceError:
        raise
    except Exception as error:
        raise HeadraceError(
            Kind.SINK_BUSY,
            f"a sink of the kind {kind!r} cannot be opened: {error!r}",
            "Look into the package that offers it.",
        ) from error


def find_sink(kind: str) -> Open:
    """Return the function that opens writers of a kind.

    Raises:
        HeadraceError: CONFIG for a kind that is not installed; DEPENDENCY where its module cannot be
            imported.
    """
    entries = [entry_point for entry_point in entry_points(group=GROUP) if entry_point.name == kind]
    if not entries:
        raise HeadraceError(
            Kind.CONFIG,
            f"no installed package offers sinks of the kind {kind!r}",
            meant(kind, kinds()) or "Install the package that does.",
        )
    try:
        take_in_pandas()
        loaded: Open = entries[0].load()
    except (ImportError, AttributeError) as error:
        raise HeadraceError(
            Kind.DEPENDENCY,
            f"the sink kind {kind!r} ({entries[0].value}) cannot be loaded: {error}",
            "Install its package where documents are written: on the executors too.",
        ) from error
    return loaded
