"""Choose the kind of lake that a deployment file names."""

from __future__ import annotations

from headrace.config.mirror import MirrorConfig
from headrace.mirror.lake import Lake


def open_lake(config: MirrorConfig) -> Lake:
    """Return the lake of a mirror; nothing is opened yet."""
    if config.format == "iceberg":
        from headrace.mirror.iceberg.lake import IcebergLake  # noqa: PLC0415 - what the other needs may be absent

        return IcebergLake(config.location, config.file_bytes)
    from headrace.mirror.delta import DeltaLake  # noqa: PLC0415

    return DeltaLake(config.location, config.file_bytes)
