"""Tables that can MERGE, for the PySpark that is installed: their jars, and what a server is told of them.

Up to PySpark 4.2 that is Delta. No released format runs on 4.3 yet: there the tables are those of Spark's own
tests, which are kept in the server's memory and merged by the same plans as any other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headrace.config.cache import cache_folder
from headrace.config.java import find_java
from headrace.embedded.jars import Jar, fetch_into, parse_line, verify
from headrace.spark.lake_runtimes import DELTA


@dataclass(frozen=True, slots=True)
class Lake:
    """What makes the catalog `lake`, or the session's own, one of tables that can MERGE.

    Attributes:
        pins: the jars: SHA-256, group:artifact:version[:classifier].
        settings: the server's.
        using: what stands behind CREATE TABLE.
    """

    pins: tuple[tuple[str, str], ...]
    settings: Mapping[str, str]
    using: str

    def jars(self) -> list[Path]:
        """The jars, fetched where they are not in the cache yet."""
        wanted = [parse_line(" ".join(pin)) for pin in self.pins]
        folder = cache_folder(os.environ) / f"spark-tests-{pyspark.__version__}"
        if not all((folder / jar.file).is_file() for jar in wanted):
            _fetch(folder, wanted)
        verify(folder, wanted)
        return [folder / jar.file for jar in wanted]


def _fetch(folder: Path, wanted: list[Jar]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as new:
        fetch_into(Path(new), wanted, find_java(17), os.environ)
        for jar in wanted:
            shutil.move(Path(new) / "lib" / jar.file, folder / jar.file)


_IN_MEMORY = Lake(
    (
        (
            "9f46cfb6d4cb5dff696b76f8af3db1ecfc56cbc43ffb0fa785ef947ac4ad2620",
            "org.apache.spark:spark-catalyst_2.13:4.2.0:tests",
        ),
    ),
    {
        "spark.sql.catalog.lake": (
            "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
        ),
        "spark.sql.defaultCatalog": "lake",
    },
    "",
)


def lake() -> Lake:
    """The one for this PySpark."""
    deltas = DELTA.pins.get(pyspark.__version__[:3])
    if deltas is None:
        return _IN_MEMORY
    settings = {**DELTA.settings, "spark.databricks.delta.snapshotPartitions": "1"}
    return Lake(deltas, settings, "USING delta")
