"""Observe tables in the database and in the lake, and ask `units.py` what is to be done with each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from headrace.catalog.fingerprint_query import POSITION
from headrace.mirror.drift import find_drift
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import Lake, trying_again
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.units import Action, ObservedTable, Wait, decide
from headrace.mirror.waiting import WaitingTables
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession


def decide_each(
    ends: MirrorEndpoints,
    waiting: WaitingTables,
    tables: Mapping[TableName, MirroredTable],
    known: Mapping[TableName, TablePosition],
    *,
    unsent: Collection[TableName] = (),
    confirmed: Lsn | None = None,
) -> tuple[dict[TableName, Action], Lsn]:
    """Return what is to be done with each table, and a position (bytes) after all that was seen.

    Args:
        ends: where the tables are.
        waiting: those that wait.
        tables: the database's tables.
        known: what is noted of each.
        unsent: those that the publication has not sent all the time since.
        confirmed: from where (bytes) the log will be read again; None: it goes on.
    """
    actions: dict[TableName, Action] = {}
    with ReadSession(ends.url, lock_seconds=LOCK_SECONDS) as session:
        # The tables were read before: all that they show lies before this position.
        [(now,)] = session.query(POSITION)
        for name, table in tables.items():
            noted = known.get(name)
            # The log that will be read may have all that the lake lacks of a table that waits.
            is_kept = noted is not None and confirmed is not None and confirmed <= noted.complete
            is_kept = is_kept and ends.selection.keeps_log(name)
            waits = waiting.reason(name) or (None if noted is None else noted.waits_for)
            try:
                observed = trying_again(ends.lake, partial(_observe, ends.lake, session, table, noted))
                is_sent = name not in unsent
                actions[name] = decide(
                    table, replace(observed, is_sent=is_sent, is_kept=is_kept, waits=waits)
                )
            except waiting.failures as error:
                actions[name] = Wait(waiting.failure_of(table, error))
    return actions, now


def _observe(
    lake: Lake, session: ReadSession, table: MirroredTable, noted: TablePosition | None
) -> ObservedTable:
    found = lake.open(table.name)
    other = drift = None
    if noted is not None and found is not None and found.position is not None:
        other = found.find_other_commit(noted.version)
    if noted is not None and noted.relation == table.relation:
        drift = find_drift(session, noted.catalog, table.catalog, table.columns)
    return ObservedTable(noted, found, other, drift=drift)
