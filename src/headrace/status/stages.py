"""Hold how much each stage of the stream has done, and how long it took. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from headrace.model.stage import Stage

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds (seconds): from a single change on an idle machine to a batch that waits for a cluster."""

LATENCY_STAGES = (Stage.CAPTURE, Stage.RESOLVE, Stage.ASSEMBLE, Stage.WRITE, "total")
"""The stages whose latency is measured.

`total` is from the commit to durable documents, by the clocks of the server and of the workers.
"""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often an action took how long.

    Attributes:
        counts: observations by bucket; the last one is without an upper bound.
        seconds: of all observations.
    """

    counts: tuple[int, ...] = (0,) * (len(LATENCY_BUCKETS) + 1)
    seconds: float = 0.0

    def observed(self, seconds: float) -> Histogram:
        """Return a copy with one more observation."""
        at = bisect_left(LATENCY_BUCKETS, seconds)
        counts = tuple(count + (bucket == at) for bucket, count in enumerate(self.counts))
        return replace(self, counts=counts, seconds=self.seconds + seconds)

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Yield the upper bound of each bucket, as Prometheus writes it, and the observations up to it."""
        yield from zip((*map(str, LATENCY_BUCKETS), "+Inf"), accumulate(self.counts), strict=True)


@dataclass(frozen=True, slots=True)
class Stages:
    """What the stages of the stream have done since it was started last.

    Seconds are those of the workers, summed: two tasks that work for one second beside each other count two.

    Attributes:
        batches: batches with changes.
        captured: changed rows.
        resolved: documents that these touch.
        assembled: documents that were read from the database.
        written: documents that the sink has taken.
        capture_seconds: taking changes from the buffer and planning them, without waiting for any; 0 for
            batches that were written before they were planned.
        resolve_seconds: from rows to documents' keys.
        assemble_seconds: from keys to documents.
        write_seconds: waiting for the sink.
        tables: changed rows by table, `SCHEMA.TABLE`.
        latency: by `LATENCY_STAGES`, how long a batch with changes took: its slowest task, and in total its
            oldest commit.
        malformed_contexts: messages that should hold a trace context and do not, while batches are traced.
    """

    batches: int = 0
    captured: int = 0
    resolved: int = 0
    assembled: int = 0
    written: int = 0
    capture_seconds: float = 0.0
    resolve_seconds: float = 0.0
    assemble_seconds: float = 0.0
    write_seconds: float = 0.0
    tables: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    malformed_contexts: int = 0


NO_STAGES = Stages()
