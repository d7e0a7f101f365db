"""Map a partition that the log reports to the table that documents name.

Without publish_via_partition_root the log names the leaf that holds a row, so that a truncated leaf is seen.
A partitioned table stands for all of its leaves, also those that are created later. Tables are identified by
their oid, because the log decodes old rows under their old names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.model.names import TableName, name_arrays
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

_PLACE = read_sql(__package__, "partition_place")

_LEAVES = read_sql(__package__, "leaves")
_INHERITANCE_CHILDREN = read_sql(__package__, "inheritance_children")


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """Where a table stands in its partition tree now.

    Attributes:
        followed: whether `root` is one of the requested tables.
        root: the table that it stands for; the table itself where it is no partition.
    """

    is_partition: bool
    followed: bool
    root: TableName


def read_place(
    session: ReadSession,
    oid: int,
    wanted: Iterable[TableName] = (),
    *,
    planned: Mapping[int, TableName] = MappingProxyType({}),
    topmost: bool = False,
) -> PartitionPlace | None:
    """Read where the table `oid` stands now; None where it no longer exists.

    A partition stands for its nearest ancestor in `wanted` or `planned`, itself included, or for the
    `topmost` of those; without one, for the topmost of all. Tables of `planned` are identified by their oids,
    and keep the names that they have there.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    oids = [str(planned_oid) for planned_oid in planned]
    rows = session.query(_PLACE, (str(oid), *name_arrays(sorted(set(wanted))), topmost, oids))
    if not rows:
        return None
    [(is_partition, followed, root, *name)] = rows
    return PartitionPlace(is_partition, followed, planned.get(root) or TableName(*name))


def read_leaves(session: ReadSession, table: TableName) -> set[int]:
    """Read the oids of the partitions that hold the rows of a partitioned table now.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return {oid for (oid,) in session.query(_LEAVES, (table.schema, table.name))}


def read_inheritance_children(
    session: ReadSession, tables: Iterable[TableName]
) -> list[tuple[TableName, TableName]]:
    """Read the INHERITS children (no partitions) of `tables`, each with its parent first.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = session.query(_INHERITANCE_CHILDREN, name_arrays(sorted(set(tables))))
    return [(TableName(*row[:2]), TableName(*row[2:])) for row in rows]


class PartitionRoots:
    """The tables that partitions stand for, now or before; not for two threads at once.

    Args:
        read: returns where a table stands now, as `read_place` does; its errors pass through.
        keep: whether the rows of a detached partition still count for its root. They must where they lead to
            documents that are read again; as changes they would be wrong.
    """

    def __init__(self, read: Callable[[int], PartitionPlace | None], *, keep: bool) -> None:
        self._read = read
        self._known: dict[int, TableName] = {}
        self._keep = keep

    def root_of(self, oid: int, table: TableName) -> TableName:
        """Return the table that `table` stands for; itself where it is no partition, or no longer exists.

        A table that was renamed to a requested name after its rows were written counts as the requested one.
        """
        place = self._read(oid)
        is_renamed = place is not None and place.followed and not (self._keep and oid in self._known)
        if place is not None and (place.is_partition or is_renamed):
            self._known[oid] = place.root
        elif place is not None and not self._keep:
            # It is detached: the changes that follow are its own.
            self._known.pop(oid, None)
        return self._known.get(oid, table)
