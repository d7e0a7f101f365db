"""Do nine of ten indexes stay as fresh in two sinks while the tenth fails? `python bench/units.py [--quick]`.

Two decks of ten indexes: one deployment, ten tables, a primary and a secondary sink. Each failure strikes
one index. Meanwhile a row of every other table is updated in turn, and the time from its commit to its
document is measured in both sinks. The ratio is the p99 before the failure to the p99 while it lasts.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import urllib3

import headrace
from harness import report
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from support.driven_run import DrivenRun

_TABLES = tuple(f"t{number}" for number in range(10))
_PREFIXES = ("one_", "two_")
_PACE_SECONDS, _PAUSE_SECONDS, _PATIENCE_SECONDS = 0.1, 0.004, 60.0
_ROWS = 200
_BAR = 0.8
_SCHEMA = "version: 1\ntable: {}\nfields:\n  - keyword: name\n  - integer: n\n"
_TRANSFORM = """
import json


def checked(batch):
    if any(json.loads(text)["n"] == 666 for text in batch.column("document").to_pylist()):
        raise ValueError("no such number")
    return batch
"""


@dataclass(frozen=True, slots=True)
class Decks:
    """The run, its database and its cluster.

    Attributes:
        database: its URL, of the owner of the tables.
        sink: OpenSearch's URL.
        folder: has the deployment file and the schema files.
        run: the run, as a role that owns nothing else.
    """

    database: str
    sink: str
    folder: Path
    run: DrivenRun

    def sql(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with connect(self.database) as connection:
            for statement in statements:
                execute(connection, statement)

    def error(self, index: str) -> str:
        """What the run says is wrong with an index, in either sink."""
        return " ".join(unit["why"] for unit in self.run.status()["units"] if unit["index"] == index)

    def is_whole(self) -> bool:
        """Whether every unit is live and nothing is in quarantine."""
        status = self.run.status()
        quarantined = sum(index["quarantined"] for index in status["indexes"])
        return not quarantined and all(unit["phase"] == "live" for unit in status["units"])

    def freshness(self, others: tuple[str, ...], updates: int) -> list[float]:
        """Return the seconds from each commit to its document in both sinks."""
        ask, taken = _asking(self.sink), []
        with connect(self.database) as connection:
            for number, table in zip(range(updates), itertools.cycle(others), strict=False):
                token, begin = f"named at {time.time_ns()}", time.perf_counter()
                id_ = 1 + number % _ROWS
                execute(connection, f"UPDATE {table} SET name = $1 WHERE id = $2", (token, id_))
                for prefix in _PREFIXES:
                    while ask(f"/{prefix}{table}/_doc/{id_}?_source_includes=name") != token:
                        if time.perf_counter() > begin + _PATIENCE_SECONDS:
                            raise AssertionError(f"{prefix}{table} is stale\n{self.run.last_output()}")
                        time.sleep(_PAUSE_SECONDS)
                taken.append(time.perf_counter() - begin)
                time.sleep(max(0.0, begin + _PACE_SECONDS - time.perf_counter()))
        return taken


def _asking(sink: str) -> Callable[[str], object]:
    """Return a function that reads the name in a document, over the lightest client."""
    connection = http.client.HTTPConnection(urlsplit(sink).netloc, timeout=_PATIENCE_SECONDS)

    def ask(target: str) -> object:
        connection.request("GET", target)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        return found.get("_source", {}).get("name")

    return ask


@contextlib.contextmanager
def decks() -> Iterator[Decks]:
    """Start both servers and the run; end all of them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with EmbeddedPostgres() as postgres, EmbeddedOpenSearch() as opensearch:
            url = postgres.create_database("units")
            _fill(url)
            config = _write_deployment(folder, url, opensearch.url)
            run = DrivenRun(config, "units", folder, ready_within=300.0)
            source = Path(headrace.__file__).parents[1]
            run.variables = {"PYTHONPATH": os.pathsep.join([str(source), str(folder)])}
            try:
                run.start()
                run.wait_ready()
                yield Decks(url, opensearch.url, folder, run)
            finally:
                run.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(url: str) -> None:
    with connect(url) as connection:
        execute(connection, "CREATE ROLE runner LOGIN REPLICATION PASSWORD 'runner'")
        execute(connection, "GRANT CREATE ON DATABASE units TO runner")
        for table in _TABLES:
            execute(connection, f"CREATE TABLE {table} (id int PRIMARY KEY, name text, n int)")
            execute(connection, f"INSERT INTO {table} SELECT i, 'x', i FROM generate_series(1, {_ROWS}) AS i")
            execute(connection, f"GRANT SELECT ON {table} TO runner")
        execute(connection, f"CREATE PUBLICATION units FOR TABLE {', '.join(_TABLES)}")


def _write_deployment(folder: Path, url: str, sink: str) -> Path:
    parts = urlsplit(url)
    own = parts._replace(netloc=f"runner:runner@{parts.hostname}:{parts.port}").geturl()
    text = f'prefix = "{_PREFIXES[0]}"\n[source]\ntype = "postgres"\nconnection_url = {json.dumps(own)}\n'
    same = f'type = "opensearch"\nurl = "{sink}"\nnumber_of_replicas = 0\n'
    text += f'[sinks.primary]\n{same}[sinks.other]\n{same}prefix = "{_PREFIXES[1]}"\n'
    for table in _TABLES:
        text += f'[[index]]\nname = "{table}"\nschema = "{table}.yml"\n'
        text += 'mappings_file = "narrow.json"\n' if table == "t0" else ""
        text += 'transform = "units_checked:checked"\n' if table == "t2" else ""
        (folder / f"{table}.yml").write_text(_SCHEMA.format(table))
    (folder / "narrow.json").write_text('{"properties": {"n": {"type": "short"}}}')
    (folder / "units_checked.py").write_text(_TRANSFORM)
    config = folder / "headrace.toml"
    config.write_text(text)
    return config


@contextlib.contextmanager
def refused_row(decks: Decks) -> Iterator[None]:
    """A cluster refuses a row."""
    decks.sql("UPDATE t0 SET n = 99999 WHERE id = 5")
    yield
    decks.sql("UPDATE t0 SET n = 5 WHERE id = 5")


@contextlib.contextmanager
def unfit_file(decks: Decks) -> Iterator[None]:
    """A schema file does not fit its table any more."""
    decks.sql("ALTER TABLE t1 RENAME n TO other")
    yield
    decks.sql("ALTER TABLE t1 RENAME other TO n")


@contextlib.contextmanager
def raising_transform(decks: Decks) -> Iterator[None]:
    """A transform raises."""
    decks.sql("UPDATE t2 SET n = 666 WHERE id = 5")
    yield
    decks.sql("UPDATE t2 SET n = 5 WHERE id = 5")


@contextlib.contextmanager
def refused_index(decks: Decks) -> Iterator[None]:
    """The cluster has no shard left for the next generation."""
    _set_cluster(decks, 1)
    decks.sql("ALTER TABLE t3 ALTER n TYPE smallint")
    yield
    _set_cluster(decks, None)


@contextlib.contextmanager
def missing_right(decks: Decks) -> Iterator[None]:
    """The role may not read a table any more."""
    decks.sql("REVOKE SELECT ON t4 FROM runner", "UPDATE t4 SET name = 'unread' WHERE id = 5")
    yield
    decks.sql("GRANT SELECT ON t4 TO runner")


@contextlib.contextmanager
def locked_table(decks: Decks) -> Iterator[None]:
    """Somebody holds a lock on a table, and a row of it was changed before."""
    with connect(decks.database, autocommit=False) as holder:
        decks.sql("UPDATE t5 SET name = 'locked' WHERE id = 5")
        execute(holder, "LOCK TABLE t5 IN ACCESS EXCLUSIVE MODE")
        yield
        holder.rollback()


FAILURES = {
    "t0": refused_row,
    "t1": unfit_file,
    "t2": raising_transform,
    "t3": refused_index,
    "t4": missing_right,
    "t5": locked_table,
}
"""By the table of the index that each strikes."""


def _set_cluster(decks: Decks, value: int | None) -> None:
    body = {"transient": {"cluster.max_shards_per_node": value}}
    urllib3.request("PUT", f"{decks.sink}/_cluster/settings", json=body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=None, help="how many are measured each time (200)")
    parser.add_argument("--quick", action="store_true", help="60 updates")
    given = parser.parse_args()
    updates = given.updates or (60 if given.quick else 200)
    report.machine()
    held, shown = [], []
    with decks() as deck:
        deck.freshness(_TABLES, 150)  # Java compiles
        for broken, fail in FAILURES.items():
            deck.run.wait_until(deck.is_whole, "is not whole", 120)
            others = tuple(table for table in _TABLES if table != broken)
            before = deck.freshness(others, updates)
            with fail(deck):
                time.sleep(3)  # it has struck by now
                during = deck.freshness(others, updates)
                said = deck.error(broken)
            what = (fail.__doc__ or "").rstrip(".")
            print(f"{what}: {said or 'nothing is said'}", flush=True)
            shown += [(f"before: {what}", before), (f"during: {what}", during)]
            ratio = report.quantile(before, 99) / report.quantile(during, 99)
            held.append(report.result(f"units.{fail.__name__}", ratio, _BAR))
        deck.run.wait_until(deck.is_whole, "is not whole", 120)
        deck.run.terminate()
        report.times(shown)
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
