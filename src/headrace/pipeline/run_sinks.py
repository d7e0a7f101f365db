"""Open all sinks of a run, and the relays by which tasks reach those of its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import sys

from headrace.errors import HeadraceError, Retry
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.project import Project
from headrace.pipeline.run_sink import ClusterSink, PlainSink, RunSink
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.sink_watch import SinkWatch
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client
from headrace.sinks.registry import open_sink
from headrace.sinks.stdout.relay import Relay
from headrace.sinks.stdout.writer import StdoutWriter
from headrace.state import DeferredKeys
from headrace.state.lease import Lease

# Between two looks.
_PRIMARY_SECONDS, _SECONDARY_SECONDS = 30.0, 5.0
_REQUEST_SECONDS, _READY_SECONDS = 10.0, 5.0


def open_sinks(
    project: Project,
    endpoints: Endpoints,
    state: Client,
    definitions: Definitions,
    *,
    report: Reporter,
    held: contextlib.ExitStack,
) -> dict[str, SinkWatch]:
    """Open the sinks of a deployment, by name; nothing is asked yet, and `held` closes them."""
    watches = {}
    for target in project.targets.values():
        key, sink = target.key, _open_sink(target, endpoints, state, definitions, report)
        count = DeferredKeys(state, key).count_by_generation if key.sink else None
        seconds = _SECONDARY_SECONDS if key.sink else _PRIMARY_SECONDS
        watches[key.sink] = watch = SinkWatch(key.sink, sink, seconds, count)
        held.callback(watch.close)
    return watches


def _open_sink(
    target: SinkTarget, endpoints: Endpoints, state: Client, definitions: Definitions, report: Reporter
) -> RunSink:
    if target.is_plain:
        return PlainSink(target, state, definitions)
    endpoint = endpoints.of(target.key).sink
    client = Client(endpoint.with_timeout(_REQUEST_SECONDS), read_attempts=2, accepted=True)
    # The run itself holds the leases of the indexes that are in the cluster with its state.
    lease = None
    if target.key.sink:
        lease = Lease(Client(endpoint.with_timeout(_READY_SECONDS), read_attempts=1), target.lease_key, [])
    return ClusterSink(target, client, state, definitions, report, lease=lease)


def open_relays(
    project: Project, endpoints: Endpoints, report: Reporter, held: contextlib.ExitStack
) -> Endpoints:
    """Return the endpoints with which tasks reach every sink; one of this process is reached by a relay.

    Raises:
        HeadraceError: a plain sink cannot be opened, and will not be later.
    """
    secondary = dict(endpoints.secondary)
    for name, target in project.secondary.items():
        if target.is_plain:
            secondary[name] = _open_relay(target, endpoints.of(target.key), report, held)
    return dataclasses.replace(endpoints, secondary=secondary)


def _open_relay(
    target: SinkTarget, endpoints: Endpoints, report: Reporter, held: contextlib.ExitStack
) -> Endpoints:
    if not target.is_stdout:
        try:
            open_sink(target.kind, endpoints.options).close()  # fails now instead of in every task
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            report.warning(f"the sink {target.name!r}: {error.cause}")
        return endpoints
    writer = StdoutWriter(sys.stdout, sink=target.name, pretty=bool(endpoints.options.get("pretty")))
    host = "127.0.0.1" if target.reports is None else target.reports.host
    relay = held.enter_context(Relay(writer, host))
    return dataclasses.replace(endpoints, options=relay.options())
