"""Tools for users' own tests: embedded servers, a sink in memory, and tests that every sink must pass."""

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.testing.memory_sink import MemorySink

__all__ = ["EmbeddedOpenSearch", "EmbeddedPostgres", "MemorySink"]
