"""Generate the page of metrics from those that a run exposes."""

from __future__ import annotations

from prometheus_client.core import Metric

from builder.markdown import cell, table
from headrace.status.board import StatusBoard
from headrace.status.metrics import BoardCollector

HEAD = """\
# Metrics

What `/metrics` of a run's public address exposes ([monitoring.md](../monitoring.md)). Units are seconds, bytes and Unix time;
an unknown value has no sample.
"""


def page() -> str:
    """Return the page's text."""
    rows = (
        (f"`{_name(family)}`", family.type, ", ".join(f"`{label}`" for label in _labels(family)), cell(family.documentation))
        for family in sorted(families(), key=lambda family: family.name)
    )
    return HEAD + "\n" + table(("metric", "type", "labels", "meaning"), rows)


def families() -> list[Metric]:
    """Return every family of a run's metrics; those of secondary sinks need one."""
    board = StatusBoard(["users"], secondary=["copy"])
    board.secondary("copy", deferred=0)
    return list(BoardCollector(board).collect())


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> tuple[str, ...]:
    return tuple(getattr(family, "_labelnames", ()))
