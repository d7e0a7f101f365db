"""Choose the kind of lake that a deployment file names."""

from __future__ import annotations

from headrace.config.mirror import MirrorConfig
from headrace.mirror.delta import DeltaLake
from headrace.mirror.lake import Lake


def open_lake(config: MirrorConfig) -> Lake:
    """Return the lake of a mirror; nothing is opened yet."""
    return DeltaLake(config.location, config.file_bytes)
