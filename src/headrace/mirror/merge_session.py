"""Bring rows into a lake's tables by MERGE in a Spark session, on its executors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.mirror.merging import Merge
from headrace.model.names import TableName
from headrace.model.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOGS = "spark.sql.catalog."
SPARK_ERRORS = (PySparkException, Py4JError)
"""What a session raises."""
_ADDRESS = re.compile(r"\bjdbc:\S+|//[^/\s]*@\S+")
_ROWS = "headrace_rows"
_SETTINGS: Mapping[str, str] = {
    # A query's session has it off.
    "spark.sql.adaptive.enabled": "true",
    # Spark's INT96 is read by most as nanoseconds, which end with the year 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    # A column may be called ${so}.
    "spark.sql.variable.substitute": "false",
}


class MergeSession:
    """Another session of a given Spark, with the settings of the given one.

    Args:
        session: stays as it is.
        settings: the format's, beside `_SETTINGS`.

    Attributes:
        spark: the other session.
    """

    def __init__(self, session: SparkSession, settings: Mapping[str, str]) -> None:
        self._given = session
        self.spark = session.newSession()
        conf = self.spark.conf
        known = conf.getAll
        for name, value in session.conf.getAll.items():
            # such as an object store's `fs.…`, or a catalog, which no part of Spark declares
            is_free = conf.isModifiable(name) or not name.startswith("spark.") or name.startswith(CATALOGS)
            if is_free and known.get(name) != value:
                conf.set(name, value)
        for name, value in {**_SETTINGS, **settings}.items():
            conf.set(name, value)

    def merge(self, target: str, columns: StructType, merge: Merge) -> Exception | None:
        """Bring rows into a table; return the error, which may hide that the commit was made.

        Args:
            target: the table, in SQL.
            columns: its columns.
            merge: the rows.
        """
        try:
            with self._rows(columns, merge.rows):
                self.spark.sql(_sql(target, merge))
        except SPARK_ERRORS as error:
            return error
        return None

    @contextlib.contextmanager
    def _rows(self, columns: StructType, rows: pa.Table) -> Iterator[None]:
        """Let SQL see rows under the name `_ROWS`."""
        if any(map(pa.types.is_nested, rows.schema.types)):
            # PySpark cannot take parts of an array whose lists are NULL.
            rows = rows.take(pa.array(range(len(rows)), pa.int64()))
        kinds = {column.name: column.dataType for column in columns.fields}
        fields = [StructField(name, kinds.get(name, BooleanType())) for name in rows.column_names]
        try:
            frame = self.spark.createDataFrame(rows, StructType(fields))
            frame.createOrReplaceTempView(_ROWS)
            yield
        finally:
            self.spark.catalog.dropTempView(_ROWS)
            # The session that makes a frame is the active one from then on.
            self._given.createDataFrame(pa.table({"a": pa.array([], pa.int64())}))

    def failure(self, name: TableName, error: Exception, positions: str) -> HeadraceError | OSError:
        """Return the error of a table that the session did not write.

        An OSError, as where files are damaged, where the session reads another table of the lake.

        Args:
            name: the database's table.
            error: what the session said.
            positions: the mirror's own table, in SQL.
        """
        what = f"Spark did not write the lake's table {name}"
        if isinstance(error, AnalysisException):
            failure = unexpected(what, error, Kind.SPARK)
        else:
            failure = unexpected(what, told(error), Kind.SINK_UNREACHABLE)
        with contextlib.suppress(*SPARK_ERRORS):
            self.spark.sql(f"SELECT slot FROM {positions}").collect()  # noqa: S608 - quoted
            return OSError(failure.cause)
        return failure


def told(error: Exception) -> Exception:
    """Return what Java says, and its first cause: PySpark does not know the errors of the formats."""
    texts = [str(error)]
    if isinstance(error, Py4JJavaError):
        causes = [error.java_exception]
        while (cause := causes[-1].getCause()) is not None:
            causes.append(cause)
        texts = [str(java.toString()) for java in (causes[0], causes[-1])]
    # A catalog's address may have its password.
    lines = [_ADDRESS.sub("…", text.strip().partition("\n")[0]).rstrip(".:") for text in texts]
    return RuntimeError(": ".join(dict.fromkeys(lines)))


def _sql(target: str, merge: Merge) -> str:
    """Return the statement."""
    matched = [(merge.is_deleted, "DELETE")] if merge.is_deleted is not None else []
    for which, values in merge.updates:
        updated = ", ".join(f"old.{quoted(name)} = {value}" for name, value in values.items())
        matched.append((which, f"UPDATE SET {updated}"))
    parts = (
        f"MERGE INTO {target} AS old USING {_ROWS} AS new ON {merge.is_same}",
        *(f"WHEN MATCHED AND {which} THEN {action}" for which, action in matched),
        f"WHEN NOT MATCHED AND {merge.is_inserted}",
        f"THEN INSERT ({', '.join(map(quoted, merge.inserted))})",
        f"VALUES ({', '.join(merge.inserted.values())})",
    )
    return " ".join(parts)
