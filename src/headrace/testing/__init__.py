"""Tools for users' own tests: embedded servers, a sink in memory, and tests that every sink must pass."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.embedded.opensearch import EmbeddedOpenSearch
    from headrace.embedded.postgres import EmbeddedPostgres
    from headrace.testing.conformance import DocumentSinkConformance, SinkConformance
    from headrace.testing.memory_sink import MemorySink

__all__ = [
    "DocumentSinkConformance",
    "EmbeddedOpenSearch",
    "EmbeddedPostgres",
    "MemorySink",
    "SinkConformance",
]

_LOADED_LATER = {
    "DocumentSinkConformance": "headrace.testing.conformance",
    "EmbeddedOpenSearch": "headrace.embedded.opensearch",
    "EmbeddedPostgres": "headrace.embedded.postgres",
    "MemorySink": "headrace.testing.memory_sink",
    "SinkConformance": "headrace.testing.conformance",
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
