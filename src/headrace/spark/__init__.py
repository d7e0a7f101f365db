"""Spark's sessions, settings and jobs; and, by name, what users of the two sources call.

Those names belong to rooms above this one, so they are loaded when somebody asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.datasources import register
    from headrace.datasources.frames import for_each_table, latest_per_key, table
    from headrace.snapshot import exported_snapshot

__all__ = ["exported_snapshot", "for_each_table", "latest_per_key", "register", "table"]


def __getattr__(name: str) -> object:
    """Load the room that has `name`."""
    if name == "register":
        from headrace import datasources  # noqa: PLC0415

        return datasources.register
    if name in {"for_each_table", "latest_per_key", "table"}:
        from headrace.datasources import frames  # noqa: PLC0415

        return getattr(frames, name)
    if name == "exported_snapshot":
        from headrace import snapshot  # noqa: PLC0415

        return snapshot.exported_snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
