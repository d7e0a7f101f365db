"""A server with settings of its own, and a database that can be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from headrace.embedded.postgres import EmbeddedPostgres
from integration.capture.following import Source
from support.means import CHROMIUM
from support.servers import installation, short_lived_server
from support.slots import prepared_database


@pytest.fixture
def make_server() -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Start a server with settings of its own; ended with the test."""
    with ExitStack() as stack:

        def make(**settings: str) -> EmbeddedPostgres:
            server = short_lived_server(settings=settings, binaries=installation())
            return stack.enter_context(server)

        yield make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium without a window, for the pages of console, designer and site."""
    expect.set_options(timeout=20_000)  # milliseconds; beside other tests a page may take long
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM.path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def url(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database in which the statements of the module's SETUP were run; its slots are dropped at the end."""
    with prepared_database(database, *getattr(request.module, "SETUP", ())) as url:
        yield url


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    """A database; publication and slot are made by the test, the streams are closed at its end."""
    source = Source(database)
    yield source
    source.close()
