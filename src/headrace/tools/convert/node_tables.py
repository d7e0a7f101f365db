"""Find the table that the rows of a PGSync node are read from: the log has no changes of views."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.catalog.remedies import KINDS, key_advice
from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.tools.convert.links import Side, side_of, tell_missing
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import ColumnEntry, Node
from headrace.tools.convert.schema_text import FieldEntry
from headrace.tools.convert.views import TableView

OPERATOR = re.compile(r"(#>>|->>|#>|->)")
"""Between the steps of a path into a json column."""


class NodeTables:
    """The tables of one index.

    Args:
        catalog: of every table that it names; None where the database is not known.
        views: what is known of those that it names.
        notes: where goes what is not the same.
    """

    def __init__(self, catalog: Catalog | None, views: Mapping[TableName, TableView], notes: Notes) -> None:
        self._catalog = catalog
        # Only these are read as their table with a condition; of the others it is said why not.
        self._views = {name: view for name, view in views.items() if not view.problem}
        self._problems = {name: view.problem for name, view in views.items() if view.problem}
        self._notes = notes

    def root_side(self, root: Node) -> Side:
        """Return the root's table, its key in the order in which PGSync joins it to an id."""
        side = self.side(root)
        if len(side.key) > 1:
            self._notes.differs(
                root.line,
                f"the key of {side.name} has several columns: an id is joined by ':', in PGSync by '|'",
                "Programs that build ids themselves must use ':'.",
            )
        if side.table is None and not root.primary_key:
            self._notes.left(
                root.line,
                f"without the database the primary key of {side.name} is unknown: id is guessed",
                "Name --env or --database, or correct `primary_key:`.",
            )
        return replace(side, key=tuple(sorted(side.key)))

    def side(self, node: Node) -> Side:
        """Return a node's table; for a view the one table that it reads, if there is one."""
        side = side_of(node.table, self._catalog, node.primary_key)
        if self._catalog is not None and side.table is None:
            tell_missing(node.table, node.line, self._catalog, self._notes)
        is_view = bool(node.base_tables) if side.table is None else side.table.kind in KINDS
        if not is_view:
            return side
        reads = node.base_tables or (side.table.reads if side.table is not None else ())
        self._tell_view(node, reads)
        return self._base_side(node, reads[0]) if len(reads) == 1 else side

    def shown(self, node: Node) -> Node:
        """Return a node of a view that is read as its table, with no more columns than the view's."""
        view = self._views.get(node.table)
        if view is None:
            return node
        for entry in node.columns:
            if OPERATOR.split(entry.text)[0] not in view.columns:
                self._notes.left(
                    entry.line,
                    f"{node.table} has no column {entry.text!r}: it is left out",
                    meant(entry.text, view.columns),
                )
        entries = node.columns or tuple(ColumnEntry(name, node.line) for name in view.columns)
        kept = tuple(entry for entry in entries if OPERATOR.split(entry.text)[0] in view.columns)
        return replace(node, columns=kept)

    def filters(self, node: Node) -> FieldEntry:
        """Return the condition of a view that is read as its table."""
        view = self._views.get(node.table)
        return {"filters": [{"raw": view.condition}]} if view is not None and view.condition else {}

    def _base_side(self, node: Node, base: TableName) -> Side:
        """Return the table behind a view; the node's key counts where the table has it."""
        found = side_of(base, self._catalog, node.primary_key)
        if found.table is not None and node.primary_key and key_advice(found.table, node.primary_key) is None:
            return replace(found, key=node.primary_key)
        return found

    def _tell_view(self, node: Node, reads: Collection[TableName]) -> None:
        """Note what becomes of a view."""
        if len(reads) != 1:
            self._notes.left(
                node.line,
                f"{node.table} is a view of {', '.join(map(str, reads)) or 'nothing known'}: the log has no "
                "changes of views, and several tables cannot stand for it",
                "Name the tables themselves, as nodes below one another.",
            )
            return
        [base] = reads
        if view := self._views.get(node.table):
            where = f", where {view.condition}" if view.condition else ""
            self._notes.differs(
                node.line,
                f"{node.table} is a view: its table {base} is read instead{where}",
                "Convert again when the view changes: the documents do not follow its definition.",
            )
            return
        why = self._problems.get(node.table)
        self._notes.left(
            node.line,
            f"{node.table} is a view: its table {base} is read instead, so rows that the view leaves out "
            "are there" + (f"; {why}" if why else ""),
            "Compare with the view's definition; write its conditions as `filters:`, its expressions as "
            "generated columns.",
        )
