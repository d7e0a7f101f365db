"""Deployments of the shop on the servers that all tests share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres

Deploy = Callable[..., contextlib.AbstractContextManager[Headrace]]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def deploy(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Deploy:
    """`deploy(users=60)` is a deployment on a new shop; `deploy(shop=…)` one more on an existing one."""

    @contextlib.contextmanager
    def make(users: int = 60, shop: Shop | None = None) -> Iterator[Headrace]:
        name = f"e2e{next(_numbers)}"
        own = shop or Shop(postgres.create_database(name), users)
        pipeline = Headrace(tmp_path_factory.mktemp(name), own, opensearch.url, name)
        try:
            yield pipeline
        finally:
            pipeline.close()
            own.drop_slots()
            if shop is None:
                postgres.drop_database(name)

    return make
