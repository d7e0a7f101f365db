"""Choose the kind of lake that a deployment file names, and who does its heavy work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.config.mirror import MirrorConfig
from headrace.mirror.lake import Lake
from headrace.spark.delta import check_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_lake(config: MirrorConfig, session: SparkSession | None = None) -> Lake:
    """Return the lake of a mirror; nothing is opened yet.

    Args:
        config: the mirror's.
        session: does the heavy work where that is `engine = "spark"`; None: this process does it.

    Raises:
        HeadraceError: DEPENDENCY, where the session cannot.
    """
    # Each is imported here: what another one needs may be absent.
    if config.format == "iceberg":
        from headrace.mirror.iceberg.lake import IcebergLake  # noqa: PLC0415

        return IcebergLake(config.location, config.file_size)
    from headrace.mirror.delta import DeltaLake  # noqa: PLC0415

    if session is None or config.engine == "local":
        return DeltaLake(config.location, config.file_size)
    from headrace.mirror.spark_engine import SparkEngine  # noqa: PLC0415

    check_delta(session)
    return DeltaLake(config.location, config.file_size, SparkEngine(session))
