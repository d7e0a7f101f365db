"""Confirm the last applied position after an orderly end of a run, so that the next start repeats nothing."""

from __future__ import annotations

import contextlib

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn
from headrace.pipeline.health_monitor import short_timeout_client
from headrace.pipeline.project import Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.slot import advance_slot
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Counters, DeferredKeys, MetaIndex


def settle(project: Project, endpoints: Endpoints, report: Reporter, *, is_same_server: bool) -> None:
    """Confirm the applied position to the slot; where that fails, the next start repeats a little.

    Args:
        project: the deployment.
        endpoints: its endpoints.
        report: warned where the position is not confirmed.
        is_same_server: whether the server was reachable all the time. One that was away may have been
            restored to an earlier time. Only the reader can notice that, so nothing is confirmed then.
    """
    if not is_same_server:
        return
    try:
        with contextlib.closing(short_timeout_client(endpoints)) as client:
            meta = MetaIndex(client, project.slot, project.prefix)
            state = meta.load()
            deferred = DeferredKeys(client, project.slot, project.prefix)
            if state is not None and state.ahead is not None and deferred.count() == 0:
                state = meta.advance(state.ahead, Counters())
        if state is not None:
            with connect(endpoints.database) as connection:
                confirm(connection, project.slot, state.applied)
    except HeadraceError as error:
        report.warning(f"the last position is not confirmed; the next start repeats a little ({error})")


def confirm(connection: Connection, slot: str, applied: Lsn) -> None:
    """Advance the slot to `applied`; wait some seconds until its reader has released it.

    Raises:
        HeadraceError: SLOT_IN_USE after some seconds, or another error of the server.
    """
    for attempt in Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, HeadraceError) and error.kind is Kind.SLOT_IN_USE
        ),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(5),
        reraise=True,
    ):
        with attempt:
            advance_slot(connection, slot, applied)
