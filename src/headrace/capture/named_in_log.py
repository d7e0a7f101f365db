"""Note which columns and partitions the log names, and notice a name that two columns had.

The log describes a table by the names of its columns, in the order of their numbers. The catalog has the
number of every column, of dropped ones too, with the transaction that dropped it. So the columns that a
transaction saw are the first ones of those that exist now or were dropped since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.model.names import TableName
from headrace.pgoutput.messages import Relation
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

GONE = -1
"""The number of a column that does not exist any more."""

_NUMBERS = read_sql(__package__, "column_numbers")


class NamedInLog:
    """The columns and partitions that the log has named so far; written by the reading thread.

    Args:
        publication: its name.

    Attributes:
        known: the number of each named column, by table and name; `GONE` where it was dropped since.
        leaves: the name of each partition that the log named, by table and oid.
        reused: of each table with a name that two columns had, what happened.
    """

    def __init__(self, publication: str) -> None:
        self.known: Mapping[TableName, Mapping[str, int]] = {}
        self.leaves: dict[TableName, Mapping[int, TableName]] = {}
        self.reused: dict[TableName, str] = {}
        self._publication = publication
        self._described: dict[TableName, Mapping[int, Mapping[str, int]]] = {}

    def forget(self, tables: Iterable[TableName]) -> None:
        """Forget what was named of tables that are read again; another thread may do so.

        Not `known`: what is read then has its columns, and the names of before may come again.
        """
        for table in tables:
            for named in (self.leaves, self.reused, self._described):
                named.pop(table, None)

    def take(self, session: ReadSession, relation: Relation, table: TableName, xid: int) -> None:
        """Take a description that a transaction gives of a relation, whose rows are those of `table`.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        if relation.table != table:
            self.leaves[table] = {**self.leaves.get(table, {}), relation.oid: relation.table}
        parameters = (str(relation.oid), str(xid), table.schema, table.name, list(relation.names))
        columns = session.query(_NUMBERS, (*parameters, GONE, self._publication))
        if len(columns) < len(relation.names):  # gone, or published in part
            self.known = {**self.known, table: self.known.get(table, {})}
            return
        numbers = {name: number for number, name, _ in columns if name is not None}
        described = {name: number for name, (number, *_) in zip(relation.names, columns, strict=False)}
        of_parts = self._described.get(table, {})
        before = of_parts.get(relation.oid, {})
        if (name := _find_reused(described, before) or _find_reused(described, numbers)) is not None:
            self.reused[table] = (
                f"the log has values of two columns of the table {table} under the name {name}"
            )
        self._described[table] = {**of_parts, relation.oid: {**before, **described}}
        of_table = {name: number for name, (*_, number) in zip(relation.names, columns, strict=False)}
        # last, and a new mapping: another thread reads the former one
        self.known = {**self.known, table: {**self.known.get(table, {}), **of_table}}


def _find_reused(now: Mapping[str, int], before: Mapping[str, int]) -> str | None:
    """Return a name that another column had before."""
    return next((name for name, number in now.items() if before.get(name, number) != number), None)
