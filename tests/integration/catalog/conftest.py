"""A real server for the catalog's tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

BIN = Path("/usr/lib/postgresql/15/bin")


class Server:
    def __init__(self, port: int) -> None:
        self.port = port

    def create_database(self, name: str) -> str:
        base = f"postgresql://postgres@127.0.0.1:{self.port}"
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"{base}/{name}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="headrace-catalog-"))
    shutil.chown(folder, "postgres")
    data = folder / "data"

    def run(*command: str) -> None:
        subprocess.run(["runuser", "-u", "postgres", "--", *command], check=True, stdout=subprocess.DEVNULL)

    run(str(BIN / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run(str(BIN / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        yield Server(port)
    finally:
        run(str(BIN / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)
