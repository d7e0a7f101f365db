"""Does a run stay as small as it began, with millions of documents? `python bench/size.py [--quick]`.

Users with five orders each are backfilled, then followed for an hour while rows change at a steady rate.
Halfway the run is killed, and started again. Every few seconds it is looked at: its memory, the time from a
commit to its document, the log that its slot retains, the transactions that VACUUM may not clean behind yet,
the bytes of its state's indexes, and of its files. The ratio of each is what it was in the second quarter of
the hour to what it was in the last, in the middle of each; at the end every document is verified.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psycopg
import urllib3
from matplotlib.figure import Figure

from harness import report
from harness.memory import MemoryWatch
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import Connection, connect, execute
from support.driven_run import DrivenRun

_NAME = "size"
_ORDERS_EACH, _AT_ONCE = 5, 1_000_000
_FILL = (
    "INSERT INTO users SELECT i, 'user ' || i, i % 7 FROM generate_series({0}, {1}) i",
    "INSERT INTO orders SELECT i * {2} + j, i, j FROM generate_series({0}, {1}) i, generate_series(1, {2}) j",
)
_SCHEMA = """
version: 1
table: users
fields:
  - keyword: name
  - integer: n
  - has_many: orders
    table: orders
    primary_key: id
    foreign_key: user_id
    fields: [{ integer: total }]
  - sum: total
    table: orders
    foreign_key: user_id
    column: total
    value_type: long
"""
_CHANGES = """
DO $$ DECLARE i bigint; BEGIN LOOP
    i := 1 + floor(random() * {0});
    UPDATE orders SET total = total % 100 + 1 WHERE user_id = i AND id % {1} = i % {1};
    COMMIT;
    IF random() < 0.1 THEN
        DELETE FROM orders WHERE id = i;
        INSERT INTO orders VALUES (i, i, 1);
        COMMIT;
    END IF;
    PERFORM pg_sleep({2});
END LOOP; END $$
"""
_SLOT = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
       greatest(age(catalog_xmin), (SELECT max(age(backend_xmin)) FROM pg_stat_activity
                                    WHERE application_name LIKE 'headrace%'), 0)
FROM pg_replication_slots WHERE slot_name = $1
"""
_BAR = 0.8
_MIB = 2**20
_PATIENCE_SECONDS, _POLL_SECONDS = 120.0, 0.01


@dataclass(frozen=True, slots=True)
class Kind:
    """What is looked at.

    Attributes:
        unit: by how much a value is divided, to be shown.
        slack: how much more is never growth, in the value's own unit.
    """

    title: str
    unit: float
    slack: float


KINDS = {
    "memory": Kind("memory, MiB", _MIB, 50 * _MIB),
    "freshness": Kind("commit to document, ms", 0.001, 0.1),
    "retained": Kind("log that the slot retains, MiB", _MIB, 64 * _MIB),
    "horizon": Kind("transactions behind which VACUUM waits", 1, 5_000),
    "state": Kind("indexes of the state, KiB", 1024, 256 * 1024),
    "files": Kind("files of the run, MiB", _MIB, 10 * _MIB),
}


@dataclass(slots=True)
class Hour:
    """The run while it follows, and what was seen of it.

    Attributes:
        scratch: where the run has its temporary files.
        seen: by kind, the time (s) since the beginning and the value.
    """

    run: DrivenRun
    database: str
    sink: str
    scratch: Path
    users: int
    seen: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def follow(self, seconds: float, pause: float) -> None:
        """Look until the time is over; kill the run once, halfway."""
        began, killed = time.monotonic(), False
        watch = MemoryWatch(self.run.members)
        with connect(self.database) as connection:
            while (now := time.monotonic() - began) < seconds:
                if not killed and now > seconds / 2:
                    self._restart()
                    killed = True
                found = {"memory": watch.look().total(), "freshness": self._freshness(connection)}
                retained, horizon = execute(connection, _SLOT, (_NAME,))[0]
                found |= {
                    "retained": retained,
                    "horizon": horizon,
                    "state": self._state(),
                    "files": self._files(),
                }
                for kind, value in found.items():
                    self.seen[kind].append((now, float(value)))
                time.sleep(max(0.0, began + now + pause - time.monotonic()))

    def _restart(self) -> None:
        self.run.kill()
        began = time.monotonic()
        self.run.start()
        self.run.wait_ready()
        print(f"killed, and live again after {time.monotonic() - began:.0f} s", flush=True)

    def _freshness(self, connection: Connection) -> float:
        user, token = random.randint(1, self.users), f"named at {time.time_ns()}"
        execute(connection, "UPDATE users SET name = $1 WHERE id = $2", (token, user))
        began = time.monotonic()
        document = f"{self.sink}/{_NAME}_users/_doc/{user}?_source_includes=name"
        while urllib3.request("GET", document).json().get("_source", {}).get("name") != token:
            assert time.monotonic() < began + _PATIENCE_SECONDS, self.run.last_output()
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def _state(self) -> int:
        indexes = f"{self.sink}/_cat/indices/{_NAME}_headrace_*?expand_wildcards=all&bytes=b&format=json"
        return sum(int(index["store.size"] or 0) for index in urllib3.request("GET", indexes).json())

    def _files(self) -> int:
        total = 0
        for path in self.scratch.rglob("*"):
            with contextlib.suppress(OSError):  # it goes while it is looked at
                total += path.stat().st_size if path.is_file() else 0
        return total

    def judge(self) -> bool:
        """Print what was seen; whether all of it is flat."""
        rows, held = [], []
        for name, points in self.seen.items():
            kind, values = KINDS[name], [value for _, value in points]
            quarter = len(values) // 4
            before, after = median(values[quarter : 2 * quarter]), median(values[-quarter:])
            shown = (before, after, max(values))
            rows.append((kind.title, *(f"{value / kind.unit:,.0f}" for value in shown)))
            held.append((name, (before + kind.slack) / (after + kind.slack)))
        report.table(("", "second quarter", "last quarter", "most"), rows)
        flat = [report.result(f"size.{name}", ratio, _BAR) for name, ratio in held]
        return all(flat)

    def draw(self, path: Path) -> None:
        """Draw what was seen, a panel for each kind."""
        figure = Figure((9, 6), layout="constrained")
        for panel, (name, points) in zip(figure.subplots(3, 2).flat, self.seen.items(), strict=True):
            panel.plot([at / 60 for at, _ in points], [value / KINDS[name].unit for _, value in points])
            panel.set_title(KINDS[name].title, fontsize=9)
            panel.set_ylim(bottom=0)
        figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=20_000_000, help="documents (20,000,000)")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it follows (60)")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second (50)")
    parser.add_argument("--plot", type=Path, help="a picture of what was seen")
    parser.add_argument("--quick", action="store_true", help="20,000 users, 3 minutes")
    given = parser.parse_args()
    users, seconds = (20_000, 180.0) if given.quick else (given.users, given.minutes * 60)
    report.machine()
    with backfilled(users) as hour:
        with changing(hour, given.rate):
            hour.follow(seconds, pause=seconds / 360)
        is_flat = hour.judge()
        if given.plot:
            hour.draw(given.plot)
        verified = hour.run.run_command("verify", "users", seconds=6 * 3600)
        print((verified.stdout + verified.stderr).strip(), flush=True)
        hour.run.terminate()
    sys.exit(not is_flat or verified.returncode != 0)


@contextlib.contextmanager
def backfilled(users: int) -> Iterator[Hour]:
    """Both servers with their rows and documents, and the run that follows."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as name,
        EmbeddedPostgres() as postgres,
        EmbeddedOpenSearch() as opensearch,
    ):
        folder, database = Path(name), postgres.create_database(_NAME)
        _fill(database, users)
        run = DrivenRun(
            _write_deployment(folder, database, opensearch.url), _NAME, folder, ready_within=24 * 3600
        )
        scratch = folder / "scratch"
        scratch.mkdir()
        run.variables = {"TMPDIR": str(scratch)}
        try:
            with MemoryWatch(run.members, seconds=5) as memory:
                began = time.monotonic()
                run.start()
                run.wait_ready()
            took = time.monotonic() - began
            print(f"{users:,} documents in {took:,.0f} s, {users / took:,.0f} a second", flush=True)
            print(f"memory meanwhile: {memory.peak / _MIB:,.0f} MiB at most", flush=True)
            yield Hour(run, database, opensearch.url, scratch, users)
        finally:
            run.close()


def _fill(database: str, users: int) -> None:
    began = time.monotonic()
    with connect(database) as connection:
        execute(connection, "CREATE TABLE users (id bigint, name text, n int)")
        execute(connection, "CREATE TABLE orders (id bigint, user_id bigint, total int)")
        for first in range(1, users + 1, _AT_ONCE):
            last = min(users, first + _AT_ONCE - 1)
            for statement in _FILL:
                execute(connection, statement.format(first, last, _ORDERS_EACH))
        execute(connection, "ALTER TABLE users ADD PRIMARY KEY (id)")
        execute(connection, "ALTER TABLE orders ADD PRIMARY KEY (id)")
        execute(connection, "CREATE INDEX ON orders (user_id)")
        execute(connection, "VACUUM ANALYZE")
        [(size,)] = execute(connection, "SELECT pg_size_pretty(pg_database_size(current_database()))")
    print(
        f"{users:,} users and {users * _ORDERS_EACH:,} orders, {size}, in {time.monotonic() - began:,.0f} s"
    )


def _write_deployment(folder: Path, database: str, sink: str) -> Path:
    config = folder / "headrace.toml"
    config.write_text(
        f'prefix = "{_NAME}_"\n[source]\ntype = "postgres"\nreplica_identity = "auto"\n'
        f"connection_url = {json.dumps(database)}\n"
        f'[sinks.primary]\ntype = "opensearch"\nurl = "{sink}"\nnumber_of_replicas = 0\n'
        '[[index]]\nname = "users"\nschema = "users.yml"\n'
    )
    (folder / "users.yml").write_text(_SCHEMA)
    return config


@contextlib.contextmanager
def changing(hour: Hour, rate: float) -> Iterator[None]:
    """Change rows meanwhile, each in a transaction of its own, inside of the server."""
    with connect(hour.database) as connection, connect(hour.database) as other:
        [(pid,)] = execute(connection, "SELECT pg_backend_pid()")
        statement = _CHANGES.format(hour.users, _ORDERS_EACH, 1 / rate)
        writer = threading.Thread(target=_change, args=(connection, statement), daemon=True)
        writer.start()
        try:
            yield
        finally:
            execute(other, "SELECT pg_cancel_backend($1)", (pid,))
            writer.join()


def _change(connection: Connection, statement: str) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        execute(connection, statement)


if __name__ == "__main__":
    main()
