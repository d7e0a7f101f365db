"""Spark's sessions, settings and jobs; also re-exports the functions for users of the two sources.

Those functions belong to rooms above this one, so they are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.config.java import spark_java_home
    from headrace.datasources import register
    from headrace.datasources.frames import for_each_table, latest_per_key, table
    from headrace.snapshot import exported_snapshot

__all__ = ["exported_snapshot", "for_each_table", "latest_per_key", "register", "spark_java_home", "table"]


def __getattr__(name: str) -> object:
    """Import the room that defines `name`."""
    if name == "register":
        from headrace import datasources  # noqa: PLC0415

        return datasources.register
    if name in {"for_each_table", "latest_per_key", "table"}:
        from headrace.datasources import frames  # noqa: PLC0415

        return getattr(frames, name)
    if name == "spark_java_home":
        from headrace.config import java  # noqa: PLC0415

        return java.spark_java_home
    if name == "exported_snapshot":
        from headrace import snapshot  # noqa: PLC0415

        return snapshot.exported_snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
