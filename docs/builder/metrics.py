"""Generate the page of metrics from those that a run exposes."""

from __future__ import annotations

from prometheus_client.core import Metric

from builder.markdown import cell, table
from headrace.status.board import Positions, StatusBoard
from headrace.status.metrics import BoardCollector
from headrace.status.mirror_board import MirrorBoard, TableStatus
from headrace.status.phases import Phase

HEAD = """\
# Metrics

**For operators**: what `/metrics` of a run's public address exposes
([monitoring.md](../guides/monitoring.md)). Units are seconds, bytes and Unix time. An unknown value has no
sample.
"""


def page() -> str:
    """Return the page's text."""
    rows = (
        (f"`{_name(family)}`", family.type, _labels(family), cell(family.documentation))
        for family in sorted(families(), key=lambda family: family.name)
    )
    return HEAD + "\n" + table(("metric", "type", "labels", "meaning"), rows)


def families() -> list[Metric]:
    """Return every family of a run's metrics, and of a mirror's; those of secondary sinks need one."""
    board = StatusBoard(["users"], secondary=["copy"])
    board.secondary("copy", deferred=0)
    board.set_positions(Positions(confirmed=1, applied=1, current=1))
    mirror = MirrorBoard("headrace_mirror")
    mirror.show(Phase.LIVE, {"orders": TableStatus("live", 1)})
    families = {family.name: family for family in mirror.collect()}
    return list((families | {family.name: family for family in BoardCollector(board).collect()}).values())


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> str:
    """Return the labels, with the values of those that have fixed ones."""
    names: tuple[str, ...] = getattr(family, "_labelnames", ())
    return "; ".join(f"`{name}`{_values(family, name)}" for name in names)


def _values(family: Metric, label: str) -> str:
    values = dict.fromkeys(sample.labels[label] for sample in family.samples if label in sample.labels)
    return f": {', '.join(values)}" if label in {"state", "stage", "position"} and values else ""
