"""How long does `headrace check` take on 200 tables? `python bench/check.py [--quick]`.

Ten indexes of twenty tables each: a root, rows that belong to it two levels deep, a parent, a junction and
what it links, counts and sums; every other lookup lacks its index. The clock is that of the command, Python's
start included, against a PostgreSQL and an OpenSearch on this machine. The statements that reach PostgreSQL
are counted, because a server that is far away makes each of them a round trip.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import headrace
from harness import report
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute

BAR_SECONDS = 3.0
INDEXES = 10
CHILDREN = 8
COLUMNS = ("code text NOT NULL", "amount numeric(12,2)", "at timestamptz", "state varchar(20)", "n int")
FIELDS = "fields: [{keyword: code}, {decimal: amount}, {timestamp: at}, {keyword: state}, {integer: n}]"
LOGGED = {"log_line_prefix": "<%a> "}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 runs instead of 7")
    given = parser.parse_args()
    report.machine()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        EmbeddedPostgres(durable=False, settings=LOGGED) as postgres,
        EmbeddedOpenSearch(heap="512m") as opensearch,
    ):
        url = postgres.create_database("check")
        tables = make_tables(url)
        config = write_files(Path(folder), url, opensearch.url)
        taken = []
        for _ in range(3 if given.quick else 7):
            begin = time.perf_counter()
            found = check(config)
            taken.append(time.perf_counter() - begin)
        statements = statements_of(postgres, url, config)
    report.machine()
    median = report.quantile(taken, 50)
    what = f"{tables} tables, {INDEXES} indexes"
    rows = [(what, f"{median:.2f}", f"{max(taken):.2f}", str(len(found["findings"])), str(statements))]
    report.table(("headrace check", "seconds, median", "longest", "findings", "statements"), rows)
    sys.exit(not report.result("check", BAR_SECONDS / median, 1.0))


def make_tables(url: str) -> int:
    """All tables, a few rows in each; how many there are."""
    with connect(url) as connection:
        for statement in _ddl():
            execute(connection, statement)
        [(count,)] = execute(connection, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    return int(count)


def _ddl() -> Iterator[str]:
    columns = ", ".join(COLUMNS)
    for number in range(INDEXES):
        root = f"root{number}"
        yield f"CREATE TABLE parent{number} (id bigint PRIMARY KEY, {columns})"
        yield f"CREATE TABLE {root} (id bigint PRIMARY KEY, parent_id bigint, {columns})"
        yield f"CREATE TABLE tag{number} (id bigint PRIMARY KEY, {columns})"
        yield f"CREATE TABLE link{number} (root_id bigint, tag_id bigint, PRIMARY KEY (root_id, tag_id))"
        for child in range(CHILDREN):
            below = f"child{number}_{child}"
            for table, above in ((below, root), (f"grand{number}_{child}", below)):
                keys = f"id bigint PRIMARY KEY, up_id bigint REFERENCES {above}"
                yield f"CREATE TABLE {table} ({keys}, {columns})"
                if child % 2:
                    yield f"CREATE INDEX ON {table} (up_id)"
                yield f"INSERT INTO {table} SELECT i, NULL, 'c' || i FROM generate_series(1, 20) i"


def write_files(folder: Path, url: str, sink: str) -> Path:
    """The deployment and its schema files; where the former is."""
    config = folder / "headrace.toml"
    text = f'[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\n'
    text += f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\n'
    for number in range(INDEXES):
        text += f'[[index]]\nname = "root{number}"\nschema = "root{number}.schema.yml"\n'
        (folder / f"root{number}.schema.yml").write_text(_schema(number))
    config.write_text(text)
    return config


def _schema(number: int) -> str:
    through = f"through: {{table: link{number}, left_key: root_id, right_key: tag_id}}"
    related = "primary_key: id, foreign_key: up_id"
    lines = [
        f"version: 1\ntable: root{number}\nprimary_key: id",
        "filters: [{raw: \"lower(code) <> 'x'\"}, {column: state, op: in, value: [a, b]}]",
        "fields:\n  - long: id\n  - keyword: code",
        f"  - {{belongs_to: parent, table: parent{number}, primary_key: id, column: parent_id, {FIELDS}}}",
        f"  - {{many_to_many: tags, table: tag{number}, primary_key: id, {FIELDS}, {through}}}",
    ]
    for child in range(CHILDREN):
        table = f"child{number}_{child}"
        below = f"{{has_many: below, table: grand{number}_{child}, {related}, {FIELDS}}}"
        lines.append(f"  - {{has_many: child{child}, table: {table}, {related}, {FIELDS[:-1]}, {below}]}}")
        lines.append(f"  - {{count: n{child}, table: {table}, foreign_key: up_id}}")
        lines.append(
            f"  - {{sum: s{child}, table: {table}, foreign_key: up_id, column: amount, value_type: decimal}}"
        )
    return "\n".join(lines) + "\n"


def check(config: Path) -> dict[str, list[object]]:
    """Run the command; what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "check", "--config", str(config), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parents[1])},
    )
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def statements_of(postgres: EmbeddedPostgres, url: str, config: Path) -> int:
    """How many statements one run sends to the server."""
    with connect(url) as connection:
        execute(connection, "ALTER DATABASE \"check\" SET log_statement = 'all'")
    check(config)
    lines = postgres.log(50_000_000).splitlines()
    return sum(
        line.startswith("<headrace") and (" execute " in line or " statement: " in line) for line in lines
    )


if __name__ == "__main__":
    main()
