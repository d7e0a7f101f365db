"""Expose the board as Prometheus metrics; they are read from the board at each scrape.

Units are base units (bytes, seconds, Unix time). An unknown value, as the lag without a slot, has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.model.stage import Stage
from headrace.status.board import IndexPhase, IndexStatus, SecondaryStatus, StatusBoard, View
from headrace.status.phases import Phase
from headrace.status.sinks import SinkActivity
from headrace.status.stages import LATENCY_STAGES, Histogram, Stages
from headrace.status.stall import Diagnosis

Samples = Iterable[tuple[Sequence[str], float | None]]
"""The values of the labels, and the value of the metric; None: there is no sample."""


def registry(board: StatusBoard) -> CollectorRegistry:
    """Return a registry that shows `board`, and nothing of the process's default registry."""
    # The default one holds the metrics of a program that runs a pipeline in itself.
    result = CollectorRegistry()
    result.register(BoardCollector(board))
    return result


def gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    """Return a gauge with labels."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def single(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge without labels; None: it has no sample."""
    return gauge(name, text, (), [((), value)])


def states(phase: Phase) -> Metric:
    """Return the state that a run or a mirror is in."""
    samples = (((state.value,), state is phase) for state in Phase)
    return gauge("headrace_state", "1 for the state that the run is in.", ("state",), samples)


def _counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, float(value))
    return family


class BoardCollector(Collector):
    """Read the board once for each scrape, so that all numbers are of one moment."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    def collect(self) -> Iterable[Metric]:
        """Yield every metric, as of now."""
        view = self._board.view()
        yield from _of_run(view)
        yield from _counters(view)
        yield _latency(view.stages)
        yield _counter(
            "headrace_malformed_trace_contexts",
            "Commits whose trace context cannot be read, since the stream was started last.",
            (),
            [((), view.stages.malformed_contexts)],
        )
        yield _stalled(view.stalled)
        yield from _indexes(view)
        for name, (text, of_sink) in _SINKS.items():
            kind = _counter if name == "headrace_sink_retries" else gauge
            yield kind(name, text, ("sink",), (((sink.name,), of_sink(sink)) for sink in view.sinks))
        if view.secondary:
            for name, (text, of_secondary) in _SECONDARY.items():
                found = (((sink,), of_secondary(status)) for sink, status in view.secondary.items())
                yield gauge(name, text, ("sink",), found)
        yield _counter(
            "headrace_control_requests",
            "Requests to the private address, accepted and refused, by what was ordered and how it was "
            "answered.",
            ("order", "outcome"),
            sorted(view.control_requests.items()),
        )


def _indexes(view: View) -> Iterator[Metric]:
    for name, (text, of_index) in _INDEXES.items():
        yield gauge(name, text, ("index",), (((index.name,), of_index(index)) for index in view.indexes))
    yield gauge(
        "headrace_index_waits",
        "1 while an index, perhaps of a secondary sink, waits or has failed; /status says why.",
        ("index", "sink"),
        (((unit.index, unit.sink), unit.is_stuck) for unit in view.units),
    )
    yield gauge(
        "headrace_quarantined_documents",
        "Documents of the index in quarantine; those of a secondary sink with its name.",
        ("index", "sink"),
        (((index.name, sink), index.quarantined) for sink, index in view.all_indexes()),
    )


def _of_run(view: View) -> Iterator[Metric]:
    yield states(view.phase)
    slot, last = view.slot, view.last_error
    values = {
        "headrace_ready": ("1 when every index is backfilled and the stream follows.", view.unready is None),
        "headrace_paused": ("1 while an operator has paused the stream.", view.paused is not None),
        "headrace_start_time_seconds": ("When the run began, in Unix time.", view.started),
        "headrace_last_error_timestamp_seconds": (
            "When the last error happened, in Unix time; absent without one.",
            None if last is None else last.time,
        ),
        "headrace_warnings": ("How many warnings `/status` lists.", len(view.warnings)),
        "headrace_lag_seconds": ("Time since the slot's position was the server's newest.", view.lag_seconds),
        "headrace_last_advance_timestamp_seconds": (
            "When the applied position advanced last, in Unix time; absent where it has not yet.",
            view.last_advance,
        ),
        "headrace_slot_unconfirmed_bytes": (
            "Log between the slot's confirmed position and the server's newest.",
            view.lag_bytes,
        ),
        "headrace_slot_safe_wal_bytes": (
            "Log that may still be written before the slot can be lost; absent without a limit.",
            None if slot is None else slot.safe_wal_size,
        ),
    }
    for name, (text, value) in values.items():
        yield single(name, text, value)
    yield single(
        "headrace_slot_retained_bytes",
        "Log that the server keeps for the slot; more than is unconfirmed while old transactions are open.",
        None if slot is None else slot.retained,
    )
    yield gauge(
        "headrace_position_bytes",
        "Positions in the write-ahead log; absent where unknown.",
        ("position",),
        (((name,), value) for name, value in asdict(view.positions).items()),
    )


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
    for name, (text, count) in totals.items():
        # They go on where the run before has ended: a 0 until they are read would look like an increase.
        yield _counter(name, text, (), [((), count if view.counts_known else None)])
    gaps = "Gaps in the log, after which everything is built again."
    yield _counter("headrace_gaps", gaps, (), [((), view.gaps)])
    rebuilds, labels = "Rebuilds of indexes that readers see, by cause.", ("index", "cause")
    yield _counter("headrace_rebuilds", rebuilds, labels, sorted(view.rebuilds.items()))
    errors = (((code,), count) for code, count in sorted(view.errors.items()))
    yield _counter("headrace_errors", "Errors by their stable code.", ("code",), errors)


def _stalled(diagnosis: Diagnosis | None) -> Metric:
    causes = dict.fromkeys((*Stage, None), "none")
    if diagnosis is not None:
        causes[diagnosis.stage] = diagnosis.cause.value
    return gauge(
        "headrace_stalled",
        "1 for the stage at which the stream stands still, with the likely cause; else 0 (none).",
        ("stage", "cause"),
        (((stage or "unknown", cause), cause != "none") for stage, cause in causes.items()),
    )


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


_INDEXES: Mapping[str, tuple[str, Callable[[IndexStatus], float | None]]] = {
    "headrace_index_backfilled": (
        "1 when the index is backfilled.",
        lambda index: index.phase is IndexPhase.LIVE,
    ),
    "headrace_index_ranges": ("Ranges of the index to backfill.", lambda index: index.ranges_total),
    "headrace_index_ranges_done": ("Ranges that are backfilled.", lambda index: index.ranges_done),
    "headrace_index_backfilled_documents": (
        "Documents that a backfill has written; at its end, those that the index holds.",
        lambda index: index.documents,
    ),
    "headrace_index_backfill_remaining_seconds": (
        "How long the backfill of the index will take at its present speed; absent where unknown.",
        lambda index: index.seconds_left,
    ),
    "headrace_drift_documents": (
        "Documents that `headrace verify` has found wrong and nothing has repaired; absent before the first.",
        lambda index: index.drift,
    ),
}
_SINKS: Mapping[str, tuple[str, Callable[[SinkActivity], float | None]]] = {
    "headrace_sink_bulk_bytes": (
        (
            "What a bulk request holds at most right now, of the writer with the smallest; beside readers a "
            "backfill takes 2 MB at most."
        ),
        lambda sink: sink.bulk_bytes,
    ),
    "headrace_sink_bulks_in_flight": ("Bulk requests under way.", lambda sink: sink.in_flight),
    "headrace_sink_retries": ("Bulk requests that were refused or not answered.", lambda sink: sink.retries),
    "headrace_sink_waiting": (
        "1 while a writer waits for the sink to take documents.",
        lambda sink: sink.error is not None,
    ),
}
_SECONDARY: Mapping[str, tuple[str, Callable[[SecondaryStatus], float | None]]] = {
    "headrace_sink_deferred_documents": (
        "Documents that a secondary sink lacks.",
        lambda sink: sink.deferred,
    ),
    "headrace_sink_away": ("1 while a secondary sink is not written to.", lambda sink: sink.away is not None),
}
"""Metrics by index, sink and secondary sink: what each says, and its value."""
