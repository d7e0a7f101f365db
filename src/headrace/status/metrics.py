"""Expose the board as Prometheus metrics; they are read from the board at each scrape.

Units are base units (bytes, seconds, Unix time). An unknown value, as the lag without a slot, has no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.model.stage import Stage
from headrace.status.board import IndexPhase, IndexStatus, StatusBoard, View
from headrace.status.phases import Phase
from headrace.status.sinks import SinkActivity
from headrace.status.stages import LATENCY_STAGES, Histogram, Stages
from headrace.status.stall import Stalled


def registry(board: StatusBoard) -> CollectorRegistry:
    """Return a registry that shows `board`, and nothing of the process's default registry."""
    result = CollectorRegistry()
    result.register(BoardCollector(board))
    return result


class BoardCollector(Collector):
    """Read the board once for each scrape, so that all numbers are of one moment."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    def collect(self) -> Iterable[Metric]:
        """Yield every metric, as of now."""
        view = self._board.view()
        yield from _state(view)
        yield from _counters(view)
        yield from _positions(view)
        yield from _slot(view)
        yield _latency(view.stages)
        yield CounterMetricFamily(
            "headrace_malformed_trace_contexts",
            "Commits whose trace context is none, since the stream was started last.",
            view.stages.malformed_contexts,
        )
        yield _stalled(view.stalled)
        yield from _indexes(view.indexes)
        yield from _sinks(view.sinks)
        yield from _secondary(view)
        yield _control_requests(view)


def _state(view: View) -> Iterator[Metric]:
    states = GaugeMetricFamily("headrace_state", "1 for the state that the run is in.", labels=["state"])
    for phase in Phase:
        states.add_metric([phase.value], float(phase is view.phase))
    yield states
    yield _gauge(
        "headrace_ready", "1 when every index is backfilled and the stream follows.", view.unready is None
    )
    yield _gauge("headrace_paused", "1 while an operator has paused the stream.", view.paused is not None)
    yield _gauge("headrace_start_time_seconds", "When the run began, in Unix time.", view.started)
    yield _gauge(
        "headrace_last_error_timestamp_seconds",
        "When the last error happened, in Unix time; absent without one.",
        None if view.last_error is None else view.last_error.time,
    )
    yield _gauge("headrace_warnings", "How many accepted risks `/status` lists.", len(view.warnings))


def _counters(view: View) -> Iterator[Metric]:
    counts = view.counts
    totals = {
        "headrace_changes": (
            "Changed rows captured from the log since the slot was made; a repeated batch counts again.",
            counts.changes,
        ),
        "headrace_upserts": ("Documents written while following; counted as changes are.", counts.upserts),
        "headrace_deletes": ("Documents deleted while following; counted as changes are.", counts.deletes),
        "headrace_batches": ("Batches whose documents are durable; counted as changes are.", counts.batches),
        "headrace_rejected_documents": ("Documents that a sink refused for good.", counts.rejected),
    }
    for name, (documentation, count) in totals.items():
        # They go on where the run before has ended: a 0 until they are read would look like an increase.
        family = CounterMetricFamily(name, documentation)
        if view.counts_known:
            family.add_metric([], count)
        yield family
    yield CounterMetricFamily(
        "headrace_gaps", "Gaps in the log behind which everything is built again.", view.gaps
    )
    rebuilds = CounterMetricFamily(
        "headrace_rebuilds",
        "Indexes that readers see and that are built again, by what led to it.",
        labels=["index", "cause"],
    )
    for (index, cause), count in sorted(view.rebuilds.items()):
        rebuilds.add_metric([index, cause], count)
    yield rebuilds
    errors = CounterMetricFamily("headrace_errors", "Errors by their stable code.", labels=["code"])
    for code, count in sorted(view.errors.items()):
        errors.add_metric([code], count)
    yield errors


def _positions(view: View) -> Iterator[Metric]:
    places = GaugeMetricFamily(
        "headrace_position_bytes", "Places in the write-ahead log; absent where unknown.", labels=["position"]
    )
    for name in ("confirmed", "applied", "current"):
        lsn = getattr(view.positions, name)
        if lsn is not None:
            places.add_metric([name], lsn)
    yield places
    yield _gauge(
        "headrace_lag_seconds", "Time since the slot's position was the server's newest.", view.lag_seconds
    )
    yield _gauge(
        "headrace_last_advance_timestamp_seconds",
        "When the applied position advanced last, in Unix time; absent where it has not yet.",
        view.last_advance,
    )


def _slot(view: View) -> Iterator[Metric]:
    slot = view.slot
    yield _gauge(
        "headrace_slot_unconfirmed_bytes",
        "Log between the slot's confirmed position and the server's newest.",
        view.lag_bytes,
    )
    yield _gauge(
        "headrace_slot_retained_bytes",
        "Log that the server keeps for the slot; more than is unconfirmed while old transactions are open.",
        None if slot is None else slot.retained,
    )
    yield _gauge(
        "headrace_slot_safe_wal_bytes",
        "Log that may still be written before the slot can be lost; absent without a limit.",
        None if slot is None else slot.safe_wal_size,
    )


def _stalled(stalled: Stalled | None) -> Metric:
    family = GaugeMetricFamily(
        "headrace_stalled",
        "1 for the stage at which the stream stands still, with the likely cause; else 0 (none).",
        labels=["stage", "cause"],
    )
    diagnosis = None if stalled is None else stalled.diagnosis
    for stage in (*Stage, None):
        is_still = diagnosis is not None and diagnosis.stage is stage
        cause = diagnosis.cause.value if diagnosis is not None and is_still else "none"
        family.add_metric([stage or "unknown", cause], float(is_still))
    return family


def _latency(stages: Stages) -> Metric:
    family = HistogramMetricFamily(
        "headrace_latency_seconds",
        "Time of a batch with changes by stage, its slowest task; total: from its oldest commit until its "
        "documents are durable, or deferred, by the clocks of server and workers.",
        labels=["stage"],
    )
    for stage in LATENCY_STAGES:
        histogram = stages.latency.get(stage, Histogram())
        family.add_metric([stage], [*histogram.buckets()], histogram.seconds)
    return family


def _control_requests(view: View) -> Metric:
    requests = CounterMetricFamily(
        "headrace_control_requests",
        "Requests to the private address, accepted and refused, by what was ordered and how it was answered.",
        labels=["order", "outcome"],
    )
    for (order, outcome), count in sorted(view.control_requests.items()):
        requests.add_metric([order, outcome], count)
    return requests


def _secondary(view: View) -> Iterator[Metric]:
    if not view.secondary:
        return
    deferred = GaugeMetricFamily(
        "headrace_sink_deferred_documents", "Documents that a secondary sink lacks.", labels=["sink"]
    )
    away = GaugeMetricFamily(
        "headrace_sink_away", "1 while a secondary sink is not written to.", labels=["sink"]
    )
    for name, secondary in view.secondary.items():
        deferred.add_metric([name], secondary.deferred)
        away.add_metric([name], float(secondary.away is not None))
    yield from (deferred, away)


def _indexes(indexes: Iterable[IndexStatus]) -> Iterator[Metric]:
    backfilled = GaugeMetricFamily(
        "headrace_index_backfilled", "1 when the index is backfilled.", labels=["index"]
    )
    planned = GaugeMetricFamily("headrace_index_ranges", "Ranges of the index to backfill.", labels=["index"])
    done = GaugeMetricFamily("headrace_index_ranges_done", "Ranges that are backfilled.", labels=["index"])
    rows = GaugeMetricFamily(
        "headrace_index_backfilled_rows", "Root rows that the backfill read.", labels=["index"]
    )
    documents = GaugeMetricFamily(
        "headrace_index_backfilled_documents",
        "Documents that a backfill has written; at its end, those that the index holds.",
        labels=["index"],
    )
    rest = GaugeMetricFamily(
        "headrace_index_backfill_remaining_seconds",
        "How long the backfill of the index will take at its present speed; absent where unknown.",
        labels=["index"],
    )
    quarantined = GaugeMetricFamily(
        "headrace_quarantined_documents", "Documents of the index in quarantine.", labels=["index"]
    )
    drift = GaugeMetricFamily(
        "headrace_drift_documents",
        "Documents that the last `headrace verify` found wrong and did not repair; absent before the first.",
        labels=["index"],
    )
    for index in indexes:
        if index.drift is not None:
            drift.add_metric([index.name], index.drift)
        if index.seconds_left is not None:
            rest.add_metric([index.name], index.seconds_left)
        backfilled.add_metric([index.name], float(index.phase is IndexPhase.LIVE))
        planned.add_metric([index.name], index.ranges_total)
        done.add_metric([index.name], index.ranges_done)
        rows.add_metric([index.name], index.rows)
        documents.add_metric([index.name], index.documents)
        quarantined.add_metric([index.name], index.quarantined)
    yield from (backfilled, planned, done, rows, documents, rest, quarantined, drift)


def _sinks(sinks: Iterable[SinkActivity]) -> Iterator[Metric]:
    size = GaugeMetricFamily(
        "headrace_sink_bulk_bytes",
        "What a bulk request holds at most right now, of the writer with the smallest; beside readers a "
        "backfill takes 2 MB at most.",
        labels=["sink"],
    )
    under_way = GaugeMetricFamily(
        "headrace_sink_bulks_in_flight", "Bulk requests under way.", labels=["sink"]
    )
    retries = CounterMetricFamily(
        "headrace_sink_retries", "Bulk requests that were refused or not answered.", labels=["sink"]
    )
    waiting = GaugeMetricFamily(
        "headrace_sink_waiting", "1 while a writer waits for the sink to take documents.", labels=["sink"]
    )
    for sink in sinks:
        if sink.bulk_bytes is not None:
            size.add_metric([sink.name], sink.bulk_bytes)
        under_way.add_metric([sink.name], sink.in_flight)
        retries.add_metric([sink.name], sink.retries)
        waiting.add_metric([sink.name], float(sink.error is not None))
    yield from (size, under_way, retries, waiting)


def _gauge(name: str, documentation: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation)
    if value is not None:
        family.add_metric([], float(value))
    return family
