"""What should be: the units that the files describe, the policies of their sinks, and open orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.state import Order, Unit


@dataclass(frozen=True, slots=True)
class Definition:
    """What the files say of a unit.

    Attributes:
        hash: of everything that determines its documents.
        misfit: why the schema file does not fit the database; empty where it fits.
    """

    hash: str
    misfit: str = ""


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be.

    Attributes:
        units: what the last valid files describe; None while they are not compared with the database.
        orders: the orders that are not answered yet, oldest first.
        keep: how many former generations of an index are retained in the sink that keeps the state.
        most_deferred: how many documents of a generation may wait for its sink; one for which more wait is
            given up, and filled again once the sink answers.
        reseeds: after a gap everything is backfilled again; else the run ends.
        reloaded: what changed by the files that a reload has read, by the order's id.
        misread: why the files that a reload read are refused, by the order's id; the former ones hold.
        stopping: the run is asked to end.
    """

    units: Mapping[Unit, Definition] | None
    orders: tuple[Order, ...] = ()
    keep: int = 0
    most_deferred: int = 1_000_000
    reseeds: bool = False
    reloaded: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    misread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stopping: bool = False
