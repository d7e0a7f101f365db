"""A database with people and pets, and a deployment of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.postgres.connection import connect, execute
from integration.cli.command_line import PEOPLE, Deployment
from integration.cli.stock import TABLES, Stock

_numbers = itertools.count(1)


def fill(url: str) -> None:
    """Make the tables."""
    with connect(url) as connection:
        for statement in PEOPLE.split(";"):
            execute(connection, statement)


@pytest.fixture
def people(database: str, tmp_path: Path) -> Deployment:
    """A deployment without a cluster."""
    fill(database)
    deployment = Deployment(tmp_path / "deployment", database, name=f"people_{next(_numbers)}")
    deployment.write()
    return deployment


@pytest.fixture
def whole(people: Deployment, opensearch: EmbeddedOpenSearch) -> Deployment:
    """A deployment whose cluster is there."""
    people.sink = opensearch.url
    people.write()
    return people


@pytest.fixture
def stock(database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[Stock]:
    with connect(database) as connection:
        for statement in TABLES:
            execute(connection, statement)
    made = Stock(tmp_path, database, opensearch.url)
    made.seed()
    yield made
    made.drop()
