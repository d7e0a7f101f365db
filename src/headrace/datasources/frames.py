"""Functions over DataFrames for the changes in a batch; they work in every session.

They use no Spark context, no JVM and no setting, so they work with Spark Connect too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headrace.capture.envelope import unwrapped
from headrace.capture.rows import RowShape
from headrace.catalog.known import KnownTable
from headrace.datasources.envelopes import TABLES
from headrace.datasources.query_schema import check_names
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import one_table
from headrace.model.types import quoted
from headrace.spark.garbage import freeze_imports

_LAST = "__headrace_last"
_EMPTIED = "__headrace_emptied"


def latest_per_key(batch: DataFrame, keys: Sequence[str], *, prefix: str = "_") -> DataFrame:
    """Return the last change of each key in a batch of `envelope=rows`, for a MERGE.

    Args:
        batch: of one table, with all columns of the source.
        keys: the columns that identify rows.
        prefix: the source's `metadataPrefix`.

    Returns:
        The same columns: for each key its newest row, of type `insert`, `update_postimage` or `delete`. Where
        the table was truncated, also the `truncate` row, and of the others only those after it: delete
        everything in the target first, then merge the rest.

    Raises:
        ValueError: `keys` is empty.
    """
    if not keys:
        raise ValueError("name the columns of the key")
    kind = _column(f"{prefix}change_type")
    place = f.struct(_column(f"{prefix}commit_lsn"), _column(f"{prefix}commit_seq"))
    emptied = batch.where(kind == "truncate").agg(f.max(place).alias(_EMPTIED))
    newest_first = Window.partitionBy(kind == "truncate", *map(_column, keys)).orderBy(
        place.desc(),
        # Two keys may be equal to Spark, as 0.0 and -0.0: then the row exists.
        kind == "delete",
    )
    return (
        batch.where(kind != "update_preimage")
        .crossJoin(f.broadcast(emptied))
        # What stood before a truncate is gone, and is not to be merged.
        .where(f.col(_EMPTIED).isNull() | (place >= f.col(_EMPTIED)))
        .withColumn(_LAST, f.row_number().over(newest_first))
        .where(f.col(_LAST) == 1)
        .drop(_LAST, _EMPTIED)
    )


def _column(name: str) -> Column:
    return f.col(quoted(name))


def table(changes: DataFrame, name: str, *, prefix: str = "_") -> DataFrame:
    """Return the changes of one table as typed rows of its own columns, as `envelope=rows` does.

    The columns are those at the time when `changes` was loaded. Values that are missing from the log and were
    not read again are NULL, and `_unchanged` names their columns. Also NULL are values of a column that the
    table did not have when the row was written, because it was added later or had been dropped.

    Args:
        changes: of `envelope=changes`, streaming or a batch of `foreachBatch`; with all its columns.
        name: the table as in the option `tables`.
        prefix: of the names of Headrace's own columns.

    Raises:
        HeadraceError: USAGE, where `changes` are of another source, know no such table, or the table has a
            column with the name of one of Headrace's; DEPENDENCY without pandas. In the query:
            SCHEMA_CHANGED where the table has a new column, or a partition alone was truncated; VALUE where a
            value does not fit its column's type any more.
    """
    _check_pandas()
    tables = _tables(changes)
    try:
        wanted = one_table(name)
    except ValueError as error:
        raise HeadraceError(Kind.USAGE, str(error)) from error
    if wanted not in tables:
        raise HeadraceError(
            Kind.USAGE,
            f"the table {wanted} was not followed when the changes were loaded",
            meant(str(wanted), map(str, tables)),
        )
    known = tables[wanted]
    shape = RowShape(wanted, known.columns, known.key, prefix, left_out=known.left_out)
    check_names(shape)
    is_wanted = (f.col("table") == str(wanted)) | (f.col("source.partition_of") == str(wanted))
    return changes.where(is_wanted).mapInArrow(_to_typed_rows(shape), shape.ddl)


def for_each_table(
    do: Callable[[str, DataFrame, int], None], *, prefix: str = "_"
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that passes on each table's rows separately.

    Args:
        do: called for each table with changes in the batch, in the order of their names, with the table's
            name, its rows as `table` returns them, and the batch's number. It runs again with the same batch
            after a failure.
        prefix: of the names of Headrace's own columns.

    Raises:
        HeadraceError: DEPENDENCY without pandas; in the query as `table`.
    """
    _check_pandas()  # now, and not in the first batch, when the slot is made

    def split(batch: DataFrame, number: int) -> None:
        names = f.coalesce(f.col("source.partition_of"), f.col("table"))
        # Each table is a query of its own, and would read the whole batch again.
        persisted = batch.persist()
        try:
            for row in persisted.select(names.alias("name")).distinct().orderBy("name").collect():
                do(row["name"], table(persisted, row["name"], prefix=prefix), number)
        finally:
            persisted.unpersist()

    return split


def _check_pandas() -> None:
    """Check that PySpark finds pandas, without which it lets nobody call `mapInArrow`."""
    if find_spec("pandas") is None:
        raise HeadraceError(
            Kind.DEPENDENCY,
            "typed rows of a table need pandas, which is not installed here",
            "Run `pip install 'pandas>=2.2,<3'`.",
        )


def _tables(changes: DataFrame) -> dict[TableName, KnownTable]:
    """Read the source's table descriptions from the metadata of the columns."""
    try:
        written = json.loads(changes.schema["after"].metadata[TABLES])
    except (KeyError, ValueError) as error:
        raise HeadraceError(
            Kind.USAGE,
            "these are not the columns of postgres_cdc with envelope=changes",
            "Load the changes with envelope=changes, and pass all columns unchanged.",
        ) from error
    return {one_table(name): KnownTable.from_text(text) for name, text in written.items()}


def _to_typed_rows(shape: RowShape) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def typed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            changes = unwrapped(batch)
            shape.check_columns(changes)
            yield shape.rows(changes)

    return typed
