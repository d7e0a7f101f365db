"""Databases with hostile names, and servers for what a shared one cannot show: few slots, a small log."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import Connection, connect, execute

_numbers = itertools.count(1)


def installation() -> Path | None:
    """The `bin` folder of the PostgreSQL to test with, from HEADRACE_TEST_POSTGRES; None is the wheel's."""
    folder = os.environ.get("HEADRACE_TEST_POSTGRES")
    return None if folder is None else Path(folder)


def as_user(url: str, user: str, password: str) -> str:
    """The same database for another user."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{where}").geturl()


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """The server of these tests; they alter roles and functions."""
    with EmbeddedPostgres(
        durable=False, settings={"max_wal_senders": "6"}, binaries=installation()
    ) as running:
        yield running


@pytest.fixture
def make_server() -> Iterator[Callable[..., EmbeddedPostgres]]:
    """Start a server with settings of its own; ended with the test."""
    with ExitStack() as stack:

        def make(**settings: str) -> EmbeddedPostgres:
            one = EmbeddedPostgres(durable=False, settings=settings, binaries=installation())
            return stack.enter_context(one)

        yield make


@pytest.fixture
def url(server: EmbeddedPostgres) -> Iterator[str]:
    """A fresh database with a hostile name; its slots are dropped at the end."""
    name = f'shop "A" {next(_numbers)}'
    yield server.create_database(name)
    mine = "FROM pg_replication_slots WHERE database = $1"
    with connect(server.url) as connection:
        execute(connection, f"SELECT pg_terminate_backend(active_pid, 5000) {mine} AND active", (name,))
        execute(connection, f"SELECT pg_drop_replication_slot(slot_name) {mine}", (name,))
    server.drop_database(name)


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url) as opened:
        yield opened
