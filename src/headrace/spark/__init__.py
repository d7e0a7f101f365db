"""Spark's sessions, settings and jobs; also re-exports the functions for users of the two sources.

Those functions belong to rooms above this one, so they are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.config.java import spark_java_home
    from headrace.datasources import register
    from headrace.datasources.frames import for_each_table, latest_per_key, table
    from headrace.snapshot.exporting import exported_snapshot

__all__ = ["exported_snapshot", "for_each_table", "latest_per_key", "register", "spark_java_home", "table"]


_LOADED_LATER = {
    "exported_snapshot": "headrace.snapshot.exporting",
    "for_each_table": "headrace.datasources.frames",
    "latest_per_key": "headrace.datasources.frames",
    "register": "headrace.datasources",
    "spark_java_home": "headrace.config.java",
    "table": "headrace.datasources.frames",
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
