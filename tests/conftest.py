"""The real servers that the tests share; each is started once, by the first test that asks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.testing.opensearch import EmbeddedOpenSearch
from headrace.testing.postgres import EmbeddedPostgres

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server with wal_level=logical. Slots and roles are shared: drop your own."""
    with EmbeddedPostgres(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> Iterator[EmbeddedOpenSearch]:
    """An OpenSearch node. Its indexes are shared: give your own a name of your own."""
    with EmbeddedOpenSearch(heap="512m", short_lived=True) as node:
        yield node


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The superuser's URL of an empty database, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)
