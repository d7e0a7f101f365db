"""Do a Delta table's heavy work: bring rows into it by key, and join its files. Here: in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from headrace.mirror.columns import has_part
from headrace.mirror.delta_commits import committing
from headrace.mirror.lake import other_writer
from headrace.mirror.merging import Merge
from headrace.mirror.net_changes import Position
from headrace.mirror.partitions import is_in_calendar
from headrace.model.lake_partition import Partition
from headrace.model.names import TableName
from headrace.model.types import quoted
from headrace.postgres.quoting import replication_literal

_MOST_VALUES = 200
"""A merge that meets more partitions looks into all of them."""


class DeltaEngine(Protocol):
    """What does the heavy work; its methods make one commit of rows, and raise as those of a `LakeTable`."""

    def merge(self, name: TableName, delta: DeltaTable, merge: Merge, position: Position) -> None:
        """Bring rows into a table, as it was when it was opened.

        Args:
            name: the database's table.
            delta: the lake's.
            merge: the rows.
            position: of the last change.
        """

    def join_files(self, name: TableName, delta: DeltaTable, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`; return how many became how many."""


class LocalEngine:
    """The `deltalake` library, without a JVM."""

    def merge(self, name: TableName, delta: DeltaTable, merge: Merge, position: Position) -> None:
        """Bring rows into a table, in one commit.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        with committing(name, position, delta.version(), lambda: DeltaTable(delta.table_uri)) as properties:
            steps = delta.merge(
                merge.rows,
                " AND ".join([merge.is_same, *pruning(merge.rows, merge.partitions, merge.key)]),
                source_alias="new",
                target_alias="old",
                # A merge that is streamed reads every file; one that is not leaves files out by statistics.
                streamed_exec=not _prunes(merge),
                writer_properties=_without_days(delta),
                commit_properties=properties,
            )
            if merge.is_deleted is not None:
                steps = steps.when_matched_delete(merge.is_deleted)
            for which, values in merge.updates:
                steps = steps.when_matched_update(_named(values), predicate=which)
            steps.when_not_matched_insert(_named(merge.inserted), predicate=merge.is_inserted).execute()

    def join_files(self, name: TableName, delta: DeltaTable, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`, in one commit; return how many became how many.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster.
        """
        try:
            done = delta.optimize.compact(
                target_size=target_bytes,
                # The library would put a second try after another writer's commit, without a word.
                commit_properties=CommitProperties(max_commit_retries=0),
                writer_properties=_without_days(delta),
            )
        except CommitFailedError as error:
            raise other_writer(name, error) from error
        return done["numFilesRemoved"], done["numFilesAdded"]


def _without_days(delta: DeltaTable) -> WriterProperties | None:
    """Return what keeps the library from statistics of dates: it ends where one is infinite."""
    columns = pa.schema(delta.schema().to_arrow())
    days = {field.name for field in columns if has_part(field.type, pa.types.is_date)}
    if not days:
        return None
    off, on = (ColumnProperties(statistics_enabled=which) for which in ("NONE", "PAGE"))
    others = {field.name: on for field in columns if field.name not in days}
    return WriterProperties(default_column_properties=off, column_properties=others)


def _named(values: Mapping[str, str]) -> dict[str, str]:
    return {quoted(column): value for column, value in values.items()}


def _prunes(merge: Merge) -> bool:
    """Tell whether a merge may leave files out whose range of keys has none of its rows."""
    return all(map(_is_exact, (merge.rows.column(name) for name in merge.key)))


def _is_exact(keys: pa.ChunkedArray) -> bool:
    """Tell whether files may be left out by the least and greatest key that they are said to have.

    A merge that is not streamed does so. It writes a decimal's statistics as a float, beside the value, and
    has no text for an infinite day.
    """
    if pa.types.is_date(keys.type):
        return bool(pc.all(is_in_calendar(keys), min_count=0).as_py())
    return bool(pa.types.is_integer(keys.type))


def pruning(rows: pa.Table, partitions: Sequence[Partition], key: Sequence[str]) -> Iterator[str]:
    """Yield conditions of a merge that leave partitions out in which no row's key can be.

    Only a column of the key tells: another one may have had another value when its row was written.

    Args:
        rows: the new rows, with derived columns.
        partitions: how the table is partitioned.
        key: the key's columns.
    """
    for partition in partitions:
        values = pc.unique(rows.column(partition.name))
        if partition.column in key and len(values) <= _MOST_VALUES:
            name = f"old.{quoted(partition.name)}"
            texts = [_literal(value) for value in values if value.is_valid]
            conditions = [f"{name} IN ({', '.join(texts)})"] if texts else []
            conditions += [f"{name} IS NULL"] if values.null_count else []
            yield f"({' OR '.join(conditions) or 'false'})"


def _literal(value: pa.Scalar) -> str:
    """Return a value in the SQL of DataFusion."""
    if pa.types.is_date32(value.type):
        return f"CAST('{value.cast(pa.string()).as_py()}' AS DATE)"
    if pa.types.is_string(value.type):
        return replication_literal(value.as_py())  # DataFusion knows no escapes either
    return str(value.as_py()).lower()
