"""Which documents does a batch of changes touch? The one place of this room that reads the database."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind
from headrace.model import Key
from headrace.postgres.session import ReadSession, is_no_value
from headrace.resolution.plan import ResolutionPlan, Route
from headrace.resolution.values import has_truncate, lead_values, tables_of, without_truncates


@dataclass(slots=True)
class Touched:
    """The documents of one index that a batch touches.

    Attributes:
        keys: the root's key values, each once; some may have no row, some no change.
        everything: a truncate: every document that exists may have changed, beside `keys`, which may be new.
    """

    keys: list[Key] = field(default_factory=list)
    everything: bool = False


class Resolver:
    """Leads changes to document keys through one session that sees all of them; used from one thread."""

    def __init__(self, session: ReadSession, plan: ResolutionPlan) -> None:
        self._session = session
        self._plan = plan

    def resolve(self, changes: pa.Table | pa.RecordBatch) -> dict[str, Touched]:
        """The touched documents by index; an index that nothing touches is absent.

        At most one query for each route of the plan, two where a label was renamed. Every transaction of
        `changes` must be visible to the session (decision 8).

        Raises:
            HeadraceError: REPLICA_IDENTITY, where a change does not carry a column that leads to
                documents; SCHEMA_CHANGED, where its value is none of the column's type any more; CONNECTION
                or DATABASE, from the session.
        """
        table = pa.Table.from_batches([changes]) if isinstance(changes, pa.RecordBatch) else changes
        everything, values = self._collect(table)
        keys: dict[str, dict[Key, None]] = {index: {} for index in everything}
        for route, lead in values.items():
            found = self._follow(route, list(lead), table)
            keys.setdefault(route.index, {}).update(dict.fromkeys(found))
        return {
            index: Touched(list(found), index in everything)
            for index, found in keys.items()
            if found or index in everything
        }

    def _collect(self, changes: pa.Table) -> tuple[set[str], dict[Route, dict[Key, None]]]:
        """The indexes that a truncate touches, and the values to lead along each route."""
        everything: set[str] = set()
        values: dict[Route, dict[Key, None]] = defaultdict(dict)
        for table, rows in tables_of(changes).items():
            routes = self._plan.routes.get(table, ())
            if routes and has_truncate(rows):
                everything |= {route.index for route in routes}
                rows = without_truncates(rows)  # noqa: PLW2901 - the same rows, those that carry values
            for columns, since in dict.fromkeys((route.columns, route.since) for route in routes):
                found = dict.fromkeys(lead_values(rows, table, columns, since))
                for route in routes:
                    if (route.columns, route.since) == (columns, since):
                        values[route].update(found)
        return everything, values

    def _follow(self, route: Route, values: list[Key], changes: pa.Table) -> list[Key]:
        """A value that is none, for example a label that was renamed since, may stand in an old change."""
        try:
            return self._query(route, values)
        except HeadraceError as error:
            if not is_no_value(error):
                raise
        late = changes.filter(pc.greater_equal(changes["_commit_lsn"], route.since))
        _, found = self._collect(late)
        try:
            return self._query(route, list(found.get(route, ())))
        except HeadraceError as error:
            if not is_no_value(error):
                raise
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the log holds a value of {', '.join(route.columns)} that is none of its type any more: "
                f"{error.cause}",
                "Start again: the documents that it leads to are built anew.",
            ) from error

    def _query(self, route: Route, values: list[Key]) -> list[Key]:
        if route.statement is None or not values:
            return values
        columns = [list(column) for column in zip(*values, strict=True)]
        return [key for key in self._session.query(route.statement, columns) if None not in key]
