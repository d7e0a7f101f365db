"""Databases of a module's own on the shared server."""

from collections.abc import Callable, Iterable, Iterator

import psycopg
import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.spark.session import LocalSpark, local_spark


@pytest.fixture(scope="module")
def make_database(
    postgres: EmbeddedPostgres, request: pytest.FixtureRequest
) -> Iterator[Callable[[Iterable[str]], str]]:
    """Makes a database of the module's own from SQL statements; gives its URL."""
    names: list[str] = []

    def make(statements: Iterable[str]) -> str:
        names.append(f"{request.module.__name__.rsplit('.', 1)[-1]}_{len(names)}")
        url = postgres.create_database(names[-1])
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return url

    yield make
    for name in names:
        postgres.drop_database(name)


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    with local_spark(master="local[2]") as one:
        yield one
