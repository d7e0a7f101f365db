"""The batch source `postgres_snapshot`: a table of PostgreSQL for Spark.

`schema` runs when the DataFrame is created, `pushFilters` and `partitions` when a query is planned, each in a
Python process that ends afterwards, so they cannot hold a snapshot. `read` runs on executors, each task with
a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.catalog.types import RowType, read_row_types
from headrace.datasources.options import read_options
from headrace.datasources.query_schema import check_distinct, chosen_columns, no_table
from headrace.datasources.source_options import SnapshotOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange
from headrace.model.types import quoted
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.postgres.wal_position import FlushedReads
from headrace.snapshot.planning import check_table, plan_tables
from headrace.snapshot.predicates import ColumnComparison, PushedCondition, render_condition
from headrace.snapshot.reading import RowSelection, check_readable, read_part
from headrace.spark.failures import short_traceback
from headrace.spark.garbage import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # since 4.1

NAME = "postgres_snapshot"
_Session = TypeVar("_Session")
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""PySpark 4.0 and 4.1 do not know this option, and always take UTC."""

_COMPARISONS: Mapping[str, ColumnComparison] = {
    "EqualTo": ColumnComparison.EQUAL,
    "EqualNullSafe": ColumnComparison.EQUAL,
    "LessThan": ColumnComparison.LESS,
    "LessThanOrEqual": ColumnComparison.AT_MOST,
    "GreaterThan": ColumnComparison.GREATER,
    "GreaterThanOrEqual": ColumnComparison.AT_LEAST,
    "StringStartsWith": ColumnComparison.STARTS_WITH,
}
"""By the name of Spark's class: PySpark 4.0 has none of them, and pushes no filters."""


class PostgresSnapshot(DataSource):
    """The source `spark.read.format("postgres_snapshot")`: one table, typed as in docs/reference/types.md.

    Options: see `headrace.datasources.source_options.SnapshotOptions`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    @short_traceback(with_values=True)
    def schema(self) -> str:
        """Return the table's columns, after a check that they may be read."""
        options = read_options(SnapshotOptions, self.options, NAME)
        with _open(ReadSession, options) as session:
            row_type = _row_type(session, options)
            check_table(session, options.table)
            chosen = _choose_columns(row_type, options)
            check_readable(session, RowSelection(row_type, chosen, _conditions_of(options)))
        return ", ".join(f"{quoted(name)} {row_type.columns[name].spark}" for name in chosen)

    @short_traceback(with_values=True)
    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of the columns of `schema`; it opens nothing yet."""
        return SnapshotReader(read_options(SnapshotOptions, self.options, NAME), schema)


@dataclass
class TablePart(InputPartition):
    """What one task reads."""

    selection: RowSelection
    ranges: tuple[CtidRange, ...]


class SnapshotReader(DataSourceReader):
    """Plans the parts; `read` runs on executors."""

    def __init__(self, options: SnapshotOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = to_arrow_schema(schema, **_UTC)
        self._conditions: list[PushedCondition] = []

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802
        """Return a function that notes filters for the server; Spark applies each of them again.

        Spark refuses a source that overrides this method in a session where pushdown is off, as it is by
        default, although no rows would be lost. It compares the method with the one of its own class, so
        `_Pushing` looks like that one.
        """
        return _Pushing(self._conditions)

    @short_traceback(with_values=True)
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the table."""
        options = self._options
        with _open(ReadSession, options) as session:
            row_type = _row_type(session, options)
            pushed = (render_condition(condition_, row_type) for condition_ in self._conditions)
            conditions = (*_conditions_of(options), *filter(None, pushed))
            selection = RowSelection(row_type, self._columns(row_type), conditions)
            planned = plan_tables(
                session, [options.table], count=options.num_partitions, target_bytes=options.partition_bytes
            )
        return [TablePart(selection, part.ranges) for part in planned[options.table]]

    def _columns(self, row_type: RowType) -> tuple[str, ...]:
        """Return the columns of the schema, which may be the user's own or an older one."""
        for field in self._schema:
            kind = row_type.columns.get(field.name)
            if kind is None or kind.arrow != field.type:
                is_now = "does not exist" if kind is None else f"is {kind.spark} ({kind.name})"
                raise HeadraceError(
                    Kind.SCHEMA_CHANGED,
                    f"the column {row_type.table}.{field.name} {is_now}, which is not what the schema says",
                    "Load the table again, without a schema of your own or with this type.",
                )
        return tuple(self._schema.names)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one part."""
        assert isinstance(partition, TablePart)
        freeze_imports()
        options = self._options
        with short_traceback(with_values=True):
            for range_ in partition.ranges:
                with _open(RowSession, options) as session:
                    unflushed = FlushedReads(session.query).look()  # the session's snapshot begins here
                    if unflushed is not None:
                        with ReadSession(options.connection) as flush_session:
                            flush_session.await_flush()
                    yield from read_part(
                        session, partition.selection, range_, self._schema, options.batch_bytes
                    )


_SPARKS_OWN: Any = getattr(DataSourceReader, "pushFilters", None)  # since 4.1


class _Pushing:
    """A callable that Spark takes for `DataSourceReader.pushFilters`."""

    __func__ = staticmethod(_SPARKS_OWN)

    def __init__(self, conditions: list[PushedCondition]) -> None:
        self._conditions = conditions

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._conditions.extend(pushed for pushed in map(condition, filters) if pushed is not None)
        return filters


def condition(filter_: Filter) -> PushedCondition | None:
    """Convert a filter to a condition on a column; None for filters that are never pushed."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(path) != 1:
        return None
    column, kind = path[0], type(filter_).__name__
    value: Any = getattr(filter_, "value", None)
    if kind == "IsNull" or (kind == "EqualNullSafe" and value is None):
        return PushedCondition(column, ColumnComparison.IS_NULL)
    if kind == "IsNotNull":
        return PushedCondition(column, ColumnComparison.IS_NOT_NULL)
    if kind == "In":
        return PushedCondition(
            column, ColumnComparison.EQUAL, tuple(item for item in value if item is not None)
        )
    comparison = _COMPARISONS.get(kind)
    return None if comparison is None else PushedCondition(column, comparison, (value,))


def _open(kind: Callable[..., _Session], options: SnapshotOptions) -> _Session:
    """Open a session on the database, in the snapshot if one is named."""
    try:
        return kind(options.connection, snapshot=options.snapshot_id)
    except HeadraceError as error:
        if options.snapshot_id is None or error.kind is not Kind.DATABASE:
            raise
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the snapshot {options.snapshot_id} is not held any more: {error.cause}",
            "Take another one, and hold it until all rows have been read.",
        ) from None


def _row_type(session: ReadSession, options: SnapshotOptions) -> RowType:
    row_type = read_row_types(session, [options.table]).get(options.table)
    if row_type is None:
        raise no_table(session, options.table)
    return row_type


def _choose_columns(row_type: RowType, options: SnapshotOptions) -> tuple[str, ...]:
    """Return the columns that the options select."""
    chosen = chosen_columns(options, row_type.table, list(row_type.columns))
    if not chosen:
        remedy = "Leave fewer columns out in excludeColumns, or name others in columns."
        raise HeadraceError(Kind.USAGE, f"no column of {row_type.table} is left to read", remedy)
    check_distinct(row_type.table, chosen)
    return tuple(chosen)


def _conditions_of(options: SnapshotOptions) -> tuple[str, ...]:
    return () if options.where is None else (options.where,)
