"""What is left to do when a run has ended in order, so that the next start repeats nothing?"""

from __future__ import annotations

import contextlib

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn
from headrace.pipeline.health_monitor import impatient_client
from headrace.pipeline.project import Endpoints, Project
from headrace.postgres.connection import Connection, connect
from headrace.postgres.slot import advance_slot
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Counters, DeferredKeys, MetaIndex


def settle(project: Project, endpoints: Endpoints, report: Reporter, *, is_same_server: bool) -> None:
    """Confirm what was applied after the last confirmation; where that fails, the next start repeats it.

    Args:
        is_same_server: whether the server was there all the time. One that was away may have been put back to
            an earlier time, which the reader notices by what the slot sends again: then nothing is confirmed.
    """
    if not is_same_server:
        return
    try:
        with contextlib.closing(impatient_client(endpoints)) as client:
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
    """Advance the slot to `applied`; its reader lets go of it a moment after it has ended.

    Raises:
        HeadraceError: SLOT_IN_USE after some seconds, or what the server refuses.
    """
    for attempt in Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, HeadraceError) and e.kind is Kind.SLOT_IN_USE),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(5),
        reraise=True,
    ):
        with attempt:
            advance_slot(connection, slot, applied)
