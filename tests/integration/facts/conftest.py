"""Servers of three major versions, each started by the first test that asks.

The facts are shown on PostgreSQL 18 and 16 (from wheels) and on Debian's 15, where that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from support.servers import BINARIES, servers_by_version, skip_without


@pytest.fixture(params=list(BINARIES), ids="PostgreSQL {}".format)
def version(request: pytest.FixtureRequest) -> int:
    """The major version that the test runs on; narrowed by an indirect parametrisation."""
    number: int = request.param
    skip_without(number)
    return number


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """The shared server of a version. Slots and roles on it are shared: drop your own."""
    with servers_by_version(max_prepared_transactions="4", autovacuum="off") as server:
        yield server


@pytest.fixture
def postgres(version: int, servers: Callable[[int], EmbeddedPostgres]) -> EmbeddedPostgres:
    """The shared server of this test's version."""
    return servers(version)


@pytest.fixture
def make_server(version: int) -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Start a server of this test's version with settings of its own; ended with the test."""
    with ExitStack() as stack:
        make = partial(EmbeddedPostgres, durable=False, binaries=BINARIES[version]())
        yield lambda **settings: stack.enter_context(make(settings=settings))
