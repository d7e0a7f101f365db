"""Describe applied batches for traces, from what Spark reports of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import HeadraceError
from headrace.model.trace import TaskTrace
from headrace.pipeline.stream.documents_source import COUNTS, EARLY, TRACE
from headrace.pipeline.worker.plan import Work
from headrace.postgres.address import parse_address
from headrace.sinks.opensearch import Client, Endpoint
from headrace.status.traces import Period, SpanServer, SpanServers, TracedBatch

_PRODUCT_SECONDS = 2.0
# Spark reports milliseconds, spans have nanoseconds.
_MS = 1_000_000
_BEFORE_CAPTURE = ("latestOffset", "walCommit")
_CAPTURE = ("getBatch", "queryPlanning")


def servers_of(work: Work) -> SpanServers:
    """Return the servers that a query works with, as spans name them."""
    works = {"": work, **work.secondary}
    return SpanServers(
        database_server(work.endpoints.database),
        _cluster(work.endpoints.keeps_state),
        {name: None if sink.plan.is_plain else _cluster(sink.endpoints.sink) for name, sink in works.items()},
    )


def traced_batch(
    report: Any, done: Mapping[str, Any], confirmed: Period, servers: SpanServers
) -> TracedBatch:
    """Describe a batch.

    Args:
        report: Spark's progress report of the batch.
        done: the sums in it.
        confirmed: when its position was saved.
        servers: of the query.
    """
    source, spent = report["sources"][0], report["durationMs"]
    asked = _MS * round(1000 * datetime.fromisoformat(report["timestamp"]).timestamp())
    began = asked + _MS * sum(spent.get(part, 0) for part in _BEFORE_CAPTURE)
    captured = began + _MS * sum(spent.get(part, 0) for part in _CAPTURE)
    task = TaskTrace.from_text(done[TRACE] or "")
    if done[EARLY]:  # before Spark planned the batch
        began = captured = min((span.begin for span in task.spans), default=began)
    return TracedBatch(
        number=int(report["batchId"]),
        start=_lsn(source["startOffset"]),
        end=_lsn(source["endOffset"]),
        counts={name: int(done[name] or 0) for name in COUNTS},
        captured=(began, captured),
        confirmed=confirmed,
        task=task,
        servers=servers,
    )


def _lsn(offset: Any) -> str:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return str(found["lsn"]) if found else ""


def database_server(url: str) -> SpanServer:
    """Return the database of a connection string, as spans name it."""
    parameters = parse_address(url).parameters
    host, port = parameters.get("host") or parameters.get("hostaddr") or "", parameters.get("port", "5432")
    name = parameters.get("dbname", "")
    if not host or "," in host or not port.isdigit():
        return SpanServer("postgresql", namespace=name)
    return SpanServer("postgresql", host, None if host.startswith("/") else int(port), name)


def _cluster(endpoint: Endpoint) -> SpanServer:
    urls = endpoint.urls
    product = _product(endpoint)
    if len(urls) > 1:
        return SpanServer(product)
    url = urlsplit(urls[0])
    return SpanServer(product, url.hostname, url.port or (443 if url.scheme == "https" else 80))


def _product(endpoint: Endpoint) -> str:
    """Return the cluster's product; OpenSearch, where it does not answer soon."""
    try:
        with contextlib.closing(Client(endpoint.with_timeout(_PRODUCT_SECONDS), read_attempts=1)) as client:
            return client.product().name
    except HeadraceError:
        return "opensearch"
