"""Give each batch with changes a trace, where the variables of OpenTelemetry ask for it.

`spans.py` makes the spans. It needs the extra `otel`, and is loaded only where traces are on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.model.trace import TaskTrace
from headrace.reporter import Reporter

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

Period = tuple[int, int]
"""A beginning and an end, nanoseconds since 1970-01-01 UTC."""


@dataclass(frozen=True, slots=True)
class SpanServer:
    """A server that a span names.

    Attributes:
        system: as `db.system.name` calls the product.
        address: its host; None where the settings name several.
        port: its port; None as for `address`, and for a socket.
        namespace: the database; empty where there is none.
    """

    system: str
    address: str | None = None
    port: int | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class SpanServers:
    """The servers of a query.

    Attributes:
        database: the database.
        state: the cluster that keeps the state.
        sinks: by the name of a secondary sink, the primary under an empty one; None: it is no cluster.
    """

    database: SpanServer
    state: SpanServer
    sinks: Mapping[str, SpanServer | None]


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """A batch that is applied.

    Attributes:
        number: Spark's number of it.
        start, end: its positions, as LSNs.
        counts: the changes and documents, by `COUNTS` of the documents source.
        captured: when its changes were taken from the reader's buffer.
        confirmed: when its position was saved.
        task: what its slowest task reports.
        servers: who did the work.
    """

    number: int
    start: str
    end: str
    counts: Mapping[str, int]
    captured: Period
    confirmed: Period
    task: TaskTrace
    servers: SpanServers

    @property
    def malformed_contexts(self) -> int:
        """How many of its trace contexts are none."""
        return sum(context.context is None for context in self.task.contexts)


class Traces(Protocol):
    """Records batches; never waits for a collector, and never fails for one."""

    def record(self, batch: TracedBatch) -> None:
        """Record a batch as a trace, and its commits in the traces of their applications."""
        ...


def open_traces(
    environ: Mapping[str, str], slot: str, report: Reporter
) -> contextlib.AbstractContextManager[Traces | None]:
    """Open what records the batches of a slot; None where no collector is named, or traces are impossible.

    Traces are an extra: what keeps them from being made is a warning, and no error. On exit what was recorded
    is sent, for some seconds at most.

    Args:
        environ: the environment of this process, which OpenTelemetry's library reads too.
        slot: the slot.
        report: is warned, also while the collector is away.
    """
    variable = next((name for name in _ENDPOINTS if environ.get(name)), None)
    if variable is None or _is_off(environ):
        return contextlib.nullcontext()
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        report.warning(
            f"no traces are sent: the protocol {protocol!r} is not supported. "
            f"Set {_PROTOCOLS[1]}={_PROTOCOL} and the collector's port for it, 4318 by default"
        )
        return contextlib.nullcontext()
    try:
        from headrace.status.spans import ExportedTraces  # noqa: PLC0415 - the extra may be missing

        return contextlib.closing(ExportedTraces.to_collector(slot, report))
    except ModuleNotFoundError:
        report.warning(
            f"no traces are sent: {variable} is set, and OpenTelemetry is not installed. "
            "Install headrace[otel], or set OTEL_SDK_DISABLED=true"
        )
    except (ValueError, OSError) as error:
        report.warning(f"no traces are sent: correct the variables OTEL_…: {type(error).__name__}: {error}")
    return contextlib.nullcontext()


def _is_off(environ: Mapping[str, str]) -> bool:
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return is_disabled or "otlp" not in exporters.split(",")
