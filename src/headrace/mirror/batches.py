"""Write the batches of a Spark query of one's own to a lake."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.config.mirror import Engine, Format, MirrorConfig, MirroredTables, Mode
from headrace.datasources.followed_tables import tables_of
from headrace.datasources.typed_options import PostgresSource
from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import POSITIONS, reaching
from headrace.mirror.mirrored_lake import WATCH_SECONDS, MirroredLake
from headrace.mirror.source_log import RELOAD
from headrace.model.names import TableName
from headrace.reporter import Reporter, SilentReporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED = {"envelope": "changes", "unchanged_toast": "mark", "starting_offsets": "earliest"}
_REFUSED = ("columns", "exclude_columns", "where", "table_keys")


def into(
    location: str | Path,
    source: PostgresSource,
    checkpoint: str | Path,
    *,
    format: Format = "delta",  # noqa: A002 - as in the file
    mode: Mode = "current",
    engine: Engine = "local",
    reporter: Reporter | None = None,
) -> LakeBatches:
    """Return a function for `foreachBatch` that keeps a lake's tables as the database's tables are.

    Tables that are not in the lake are loaded with the first batch.

    Args:
        location: a folder or a URL of an object store; each table is in `SCHEMA/TABLE`. It belongs to the
            source's slot. For Iceberg also `catalog:NAME`.
        source: what the query reads.
        checkpoint: the query's `checkpointLocation`; each batch looks up there how far it goes.
        format: of the tables: `delta` or `iceberg`.
        mode: what the lake holds of each table: `current` rows, `history` or `changes`.
        engine: what brings changes into the tables: `local`, this process; `spark`, the query's own session,
            which has Delta or Iceberg.
        reporter: is told what is loaded and altered; None: nobody.

    Raises:
        HeadraceError: USAGE, where the source leaves out what a mirror needs.
    """
    for option, value in _NEEDED.items():
        given = getattr(source, option)
        if given != value:
            cause = f"a mirror cannot be made from {option}={given}"
            raise HeadraceError(Kind.USAGE, cause, f'Give the source {option}="{value}".')
    for option in _REFUSED:
        if getattr(source, option):
            cause = f"the source's {option} would leave parts of its tables out of the lake"
            raise HeadraceError(Kind.USAGE, cause, f"Leave {option} out.")
    config = MirrorConfig(
        location=str(location),
        format=format,
        engine=engine,
        slot=source.slot,
        publication=source.publication,
        tables=(MirroredTables(tables=(source.options()["tables"],), mode=mode),),
    )
    report = SilentReporter() if reporter is None else reporter
    return LakeBatches(MirroredLake(source.connection, config, report), checkpoint)


_READ_AGAIN = (
    f"Remove the lake's table {POSITIONS.name}, and start the query again: it reads all tables again."
)


class LakeBatches:
    """Writes batch after batch; what `into` returns."""

    def __init__(self, mirror: MirroredLake, checkpoint: str | Path) -> None:
        self._mirror = mirror
        self._checkpoint = str(checkpoint).rstrip("/")
        self._tables: list[TableName] | None = None
        self._watched = 0.0

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch; one that was written before leaves everything as it is.

        Raises:
            HeadraceError: CONTINUITY, where the log has a gap after what the lake has, or another program
                has written the lake's tables; what the database or the lake refuse.
        """
        try:
            self._write(batch, number)
        except HeadraceError as error:
            error.remedy = error.remedy.replace(RELOAD, _READ_AGAIN)
            raise

    def _write(self, batch: DataFrame, number: int) -> None:
        end = self._read_offset(batch, number)
        # Spark hands the same batch again after an error: tables are prepared again from what the lake has.
        tables, self._tables = self._tables, None
        is_first = tables is None
        if is_first:
            self._mirror.use(batch.sparkSession)
        # A table that was created since is followed by the query's next start.
        self._mirror.follow_only(tables_of(end))
        with reaching(self._mirror.lake):
            if tables is None or self._is_altered():
                tables = self._mirror.prepare()
            # A checkpoint that is newer than the lake would skip what the lake lacks.
            if is_first and number:
                self._mirror.notes.check_reached(self._read_offset(batch, number - 1))
            self._mirror.write(batch.toArrow(), end, tables)
        self._tables = tables

    def _is_altered(self) -> bool:
        """Tell whether the database's tables are others by now; looks every few seconds."""
        if time.monotonic() < self._watched + WATCH_SECONDS:
            return False
        self._watched = time.monotonic()
        return self._mirror.is_altered()

    def _read_offset(self, batch: DataFrame, number: int) -> Mapping[str, Any]:
        """Return the offset at which the batch `number` ends, as the query's checkpoint says."""
        path = f"{self._checkpoint}/offsets/{number}"
        lines = [row[0] for row in batch.sparkSession.read.text(path, wholetext=True).collect()]
        offset: Mapping[str, Any] = json.loads(lines[0].splitlines()[-1])
        return offset
