"""Databases with hostile names, on a server of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import Connection, connect, execute
from support.servers import installation, short_lived_server
from support.slots import drop_slots

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """The server of these tests; they alter roles and functions."""
    with short_lived_server(settings={"max_wal_senders": "6"}, binaries=installation()) as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> Iterator[str]:
    """A fresh database with a hostile name; its slots are dropped at the end."""
    name = f'shop "A" {next(_numbers)}'
    made = server.create_database(name)
    yield made
    with connect(server.url) as connection:
        active = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1"
        execute(connection, f"{active} AND active", (name,))
    drop_slots(made)
    server.drop_database(name)


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url) as opened:
        yield opened
