"""Headrace leads PostgreSQL's write-ahead log to Spark and to search documents that are always right.

Importing this package loads neither PySpark nor a database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.reporter import LoggingReporter, Reporter, SilentReporter
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.datasources.typed_options import PostgresSource
    from headrace.mirror.mirror import Mirror
    from headrace.mirror.verify import TableComparison
    from headrace.pipeline.pipeline import Pipeline
    from headrace.pipeline.reloads import ReloadResult
    from headrace.pipeline.running import RunningPipeline
    from headrace.tools.check import CheckReport
    from headrace.tools.index_cost import IndexCost
    from headrace.tools.setup import PlannedSetup
    from headrace.tools.verification.report import Report

__all__ = [
    "CheckReport",
    "ErrorGroup",
    "HeadraceError",
    "IndexCost",
    "Kind",
    "LoggingReporter",
    "Mirror",
    "Pipeline",
    "PlannedSetup",
    "PostgresSource",
    "ReloadResult",
    "Report",
    "Reporter",
    "RunningPipeline",
    "SilentReporter",
    "TableComparison",
    "__version__",
]

_LOADED_LATER = {
    "CheckReport": "tools.check",
    "IndexCost": "tools.index_cost",
    "Mirror": "mirror.mirror",
    "Pipeline": "pipeline.pipeline",
    "PlannedSetup": "tools.setup",
    "PostgresSource": "datasources.typed_options",
    "ReloadResult": "pipeline.reloads",
    "Report": "tools.verification.report",
    "RunningPipeline": "pipeline.running",
    "TableComparison": "mirror.verify",
}
"""Names that need more than the standard library, and the module from which each is loaded when asked for."""


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
