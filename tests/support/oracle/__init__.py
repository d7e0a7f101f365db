"""Compute the documents that the indexes of any schema files should hold.

Worked out the slow and obvious way, from plain `SELECT *` of whole tables in one snapshot. Nothing here is
shared with the rooms that it judges: not the catalog, not resolution, not assembly; only the declared tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.schema.tree import IndexSpec
from support.oracle.documents import evaluate
from support.oracle.tables import read_tables

__all__ = ["naive_documents"]


def naive_documents(url: str, specs: Iterable[IndexSpec]) -> dict[str, dict[str, object]]:
    """The documents of each index by id, as the database stands now.

    Values are as a reader of parsed JSON sees them: numbers as int or Decimal, times as ISO text, nulls
    present. A root's key, and that of what an aggregate counts, is the table's primary key where the spec
    names none.

    Raises:
        HeadraceError: CONNECTION or AUTHENTICATION.
    """
    wanted = list(specs)
    tables = read_tables(url, frozenset[object]().union(*(spec.tables() for spec in wanted)))
    return {spec.name: evaluate(spec, tables) for spec in wanted}
