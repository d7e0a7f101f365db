"""A server with settings of its own, and a database that can be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from integration.capture.following import Source
from support.servers import installation, short_lived_server


@pytest.fixture
def make_server() -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Start a server with settings of its own; ended with the test."""
    with ExitStack() as stack:

        def make(**settings: str) -> EmbeddedPostgres:
            server = short_lived_server(settings=settings, binaries=installation())
            return stack.enter_context(server)

        yield make


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    """A database; publication and slot are made by the test, the streams are closed at its end."""
    source = Source(database)
    yield source
    source.close()
