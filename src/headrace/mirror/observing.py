"""Observe tables in the database and in the lake, and ask `units.py` what is to be done with each."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.catalog.fingerprint_query import POSITION
from headrace.mirror.drift import find_drift
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import trying_again
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.units import Action, ObservedTable, Wait, decide
from headrace.mirror.waiting import WaitingTables
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession


@dataclass(frozen=True, slots=True)
class TableObserver:
    """Observes tables.

    Attributes:
        ends: where they are.
        waiting: those that wait.
    """

    ends: MirrorEndpoints
    waiting: WaitingTables

    def decide(
        self,
        tables: Mapping[TableName, MirroredTable],
        known: Mapping[TableName, TablePosition],
        unsent: Collection[TableName] = (),
        confirmed: Lsn | None = None,
    ) -> tuple[dict[TableName, Action], Lsn]:
        """Return what is to be done with each table, and a position (bytes) behind all that was seen.

        Args:
            tables: the database's tables.
            known: what is noted of each.
            unsent: those that the publication has not sent all the time since.
            confirmed: from where (bytes) the log will be read again; None: it goes on.
        """
        actions: dict[TableName, Action] = {}
        with ReadSession(self.ends.url, lock_seconds=LOCK_SECONDS) as session:
            # The tables were read before: all that they show lies before this position.
            [(now,)] = session.query(POSITION)
            for name, table in tables.items():
                try:
                    observe = functools.partial(self._observe, session, table, known.get(name))
                    observed = trying_again(self.ends.lake, observe)
                    is_kept = self._is_kept(known.get(name), confirmed, name)
                    actions[name] = decide(
                        table, replace(observed, is_sent=name not in unsent, is_kept=is_kept)
                    )
                except self.waiting.failures as error:
                    actions[name] = Wait(self.waiting.failure_of(table, error))
        return actions, now

    def _is_kept(self, noted: TablePosition | None, confirmed: Lsn | None, name: TableName) -> bool:
        """Tell whether the log that will be read has all that the lake lacks of a table."""
        if noted is None or confirmed is None:
            return False
        return confirmed <= noted.complete and self.ends.selection.keeps_log(name)

    def _observe(
        self, session: ReadSession, table: MirroredTable, noted: TablePosition | None
    ) -> ObservedTable:
        lake = self.ends.lake.open(table.name)
        if noted is None:
            return ObservedTable(None, lake)
        other = drift = None
        if lake is not None and lake.position is not None:
            other = lake.find_other_commit(noted.version)
        if noted.relation == table.relation:
            drift = find_drift(session, noted.catalog, table.catalog, table.columns)
        waits = self.waiting.reason(table.name) or noted.waits_for
        return ObservedTable(noted, lake, other, waits=waits, drift=drift)
