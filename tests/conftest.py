"""The real servers that the tests share; each is started once, by the first test that asks."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from psycopg.errors import ObjectInUse
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from xdist.scheduler import LoadScopeScheduling

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from support.elasticsearch import elasticsearch
from support.servers import installation, short_lived_server

settings.register_profile("headrace", deadline=None)  # a busy machine makes no test wrong
settings.register_profile("quick", deadline=None, max_examples=15)  # make quick
settings.load_profile("headrace")

_SPARK = "tests/integration/datasources/"
_BUSY = "tests/e2e/"
_numbers = itertools.count(1)


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file's tests share one process; those of the folder that shares a Spark session do too."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _SPARK if file.startswith(_SPARK) else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest part first, so that nobody waits for it at the end.

    Then files that keep processors busy, spread among the first half of the others, which mostly wait.
    """
    files = dict.fromkeys(map(_file, items))
    busy = [file for file in files if file.startswith(_BUSY)]
    others = [file for file in files if not file.startswith(_BUSY)]
    places = {file: float(number) for number, file in enumerate(others)}
    places |= {file: number * len(others) / 2 / len(busy) for number, file in enumerate(busy)}
    items.sort(key=lambda item: (not item.nodeid.startswith(_SPARK), places[_file(item)]))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests, which stay: it took a twelfth of the time."""
    gc.collect()
    gc.freeze()


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> _Together:
    """Which process runs which tests."""
    return _Together(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server with wal_level=logical. Slots and roles are shared: drop your own."""
    with short_lived_server(binaries=installation()) as server:
        yield server


@pytest.fixture(scope="session")
def opensearch() -> Iterator[EmbeddedOpenSearch]:
    """An OpenSearch node. Its indexes are shared: give your own a name of your own.

    HEADRACE_TEST_ELASTICSEARCH=9.2.0 puts that version of Elasticsearch in its place.
    """
    if version := os.environ.get("HEADRACE_TEST_ELASTICSEARCH"):
        with elasticsearch(version) as other:
            yield other  # type: ignore[misc] # what the sinks' tests use of a node is alike
        return
    with EmbeddedOpenSearch(heap="512m", short_lived=True) as node:
        yield node


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The superuser's URL of an empty database, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    yield postgres.create_database(name)
    # A reader of a slot that was closed may not have ended yet.
    in_use = retry_if_exception_type(ObjectInUse)
    retrying = Retrying(retry=in_use, wait=wait_fixed(0.1), stop=stop_after_delay(60), reraise=True)
    retrying(postgres.drop_database, name)
