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
class SinkPolicy:
    """How the stream treats a sink.

    Attributes:
        most_deferred: how many documents of a generation may wait; one for which more wait is given up, and
            filled again once the sink answers.
        keep: how many former generations of an index are retained.
    """

    most_deferred: int = 1_000_000
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Desired:
    """What should be.

    Attributes:
        units: what the last valid files describe.
        sinks: the policy of each sink; `""` is the sink that keeps the state.
        orders: the orders that are not answered yet, oldest first.
        reseeds: behind a gap everything is backfilled again; else the run ends.
        reloaded: what changed by the files that a reload has read, by the order's id.
        misread: why the files that a reload read are refused, by the order's id; the former ones hold.
        stopping: the run is asked to end.
    """

    units: Mapping[Unit, Definition]
    sinks: Mapping[str, SinkPolicy]
    orders: tuple[Order, ...] = ()
    reseeds: bool = False
    reloaded: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    misread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stopping: bool = False
