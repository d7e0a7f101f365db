"""Choose the kind of lake that a deployment file names, and who does its heavy work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.config.mirror import Format, MirrorConfig, is_folder
from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import POSITIONS, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_METADATA: dict[Format, str] = {"delta": "_delta_log", "iceberg": "metadata"}
"""The folder that each table of a format has."""


def open_lake(config: MirrorConfig, session: SparkSession | None = None) -> Lake:
    """Return the lake of a mirror; nothing is opened yet.

    Args:
        config: the mirror's.
        session: does the heavy work where that is `engine = "spark"`; None: this process does it.

    Raises:
        HeadraceError: DEPENDENCY, where the session cannot; CONFIG, where the location has another format's.
    """
    _check_format(config)
    if config.engine == "local":
        session = None
    # Each is imported here: what another one needs may be absent.
    if config.format == "iceberg":
        from headrace.mirror.iceberg.lake import IcebergLake  # noqa: PLC0415

        return IcebergLake(config.location, config.file_size, session)
    from headrace.mirror.delta import DeltaLake  # noqa: PLC0415

    if session is None:
        return DeltaLake(config.location, config.file_size)
    from headrace.mirror.delta_spark import DeltaSparkEngine  # noqa: PLC0415

    return DeltaLake(config.location, config.file_size, DeltaSparkEngine(session))


def _check_format(config: MirrorConfig) -> None:
    """Refuse a folder that is a mirror of another format: its tables would not be found."""
    for kind, metadata in _METADATA.items():
        is_there = is_folder(config.location) and Path(config.location, POSITIONS.name, metadata).is_dir()
        if is_there and kind != config.format:
            raise HeadraceError(
                Kind.CONFIG,
                f"the lake at {config.location} is a mirror of the format {kind!r}, not {config.format!r}",
                f'Write format = "{kind}", or give the mirror another location and slot.',
            )
