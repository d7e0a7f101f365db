"""A query that is killed at a chosen point, with writers beside it, and what its rows come to."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from headrace.datasources.read_limits import ReadAllAvailable
from headrace.postgres.connection import connect, execute
from integration.datasources.driven import Query, as_stored

TABLES = (
    "CREATE TABLE item (id int PRIMARY KEY, name text)",
    "CREATE TABLE heap (id int, name text)",
    "ALTER TABLE heap REPLICA IDENTITY FULL",
    "INSERT INTO item SELECT g, repeat('x', 100) FROM generate_series(1, 400) g",
    "INSERT INTO heap SELECT g, repeat('x', 100) FROM generate_series(1, 400) g",
)
BOTH = {"tables": "item, heap", "envelope": "changes", "maxBytesPerTrigger": "32k"}
END = "INSERT INTO item VALUES (-1, 'end')"
Row = dict[str, Any]


class Killed(Query):
    """A query with a sink that keeps what came with the last try of each batch, and that is killed once.

    Attributes:
        batches: what the sink holds, in order.
        kill: at which stage, and point of its batch, the process ends; None: not any more.
        meanwhile: what happens between the end of a process and the next one.
    """

    def __init__(self, url: str, **options: str) -> None:
        super().__init__(url, **options)
        self.batches: list[list[Row]] = []
        self.kill: tuple[str, str] | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def step(self) -> list[Row]:
        """One batch, through all the points at which a process can end."""
        if not self.offsets:
            self.offsets.append(as_stored(self.reader.initialOffset()))
            if self._dies("first", "begun"):
                self.offsets.clear()
                return []
        start = self.offsets[-1]
        end = as_stored(self.reader.latestOffset(start, ReadAllAvailable()))
        if end == start:
            return []
        stage = stage_of(start, end)
        if self._dies(stage, "planned"):
            if len(self.offsets) == 1:
                self.offsets.clear()
            return []
        self.offsets.append(end)
        if self._dies(stage, "logged"):
            start = self._asked_again()
        found = self.batch(start, end)
        if self._dies(stage, "read"):
            again = self.batch(self._asked_again(), end)
            assert stage != "stream" or again == found
            found = again
        self.batches.append(found)
        self.rows = [row for batch in self.batches for row in batch]
        self._dies(stage, "committed")
        return found

    def is_through(self) -> bool:
        """Whether it was killed, and follows the stream of all its tables."""
        if self.kill is not None or not self.offsets or "snapshot" in self.offsets[-1]:
            return False
        return len(self.offsets[-1]["tables"]) == len(self.options["tables"].split(","))

    def _dies(self, stage: str, point: str) -> bool:
        if self.kill != (stage, point):
            return False
        self.kill = None
        self.restart()
        self.meanwhile()
        return True

    def _asked_again(self) -> dict[str, Any]:
        """Where the last batch began; Spark keeps no offset before the first one's end."""
        if len(self.offsets) == 2 and not self.batches:
            self.offsets[0] = as_stored(self.reader.initialOffset())
        return self.offsets[-2]


def stage_of(start: dict[str, Any], end: dict[str, Any]) -> str:
    """Which part of the reading a batch is."""
    if "snapshot" not in end:
        return "over" if "snapshot" in start else "stream"
    return "middle" if start.get("snapshot", {}).get("attempt") else "first"


@contextlib.contextmanager
def writers(url: str) -> Iterator[None]:
    """Two sessions that insert, update and delete, until the block ends."""
    ending = threading.Event()
    threads = [threading.Thread(target=_write, args=(url, ending, seed)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def _write(url: str, ending: threading.Event, seed: int) -> None:
    chosen = random.Random(seed)
    with connect(url) as connection:
        while not ending.wait(0.002):
            ids = sorted(chosen.sample(range(1, 500), 3))
            ending_words = chosen.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])
            for statement in (
                "BEGIN",
                f"SET LOCAL synchronous_commit = {chosen.choice(['on', 'off'])}",
                *(word for key in ids for word in _statements(key, chosen)),
                ending_words,
            ):
                execute(connection, statement)


def _statements(key: int, chosen: random.Random) -> list[str]:
    """What is written of one id; a part of it in a subtransaction, which may be rolled back."""
    name = f"{chosen.random()}"
    return [
        f"INSERT INTO item VALUES ({key}, '{name}') ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        "SAVEPOINT inside",
        chosen.choice([f"DELETE FROM item WHERE id = {key}", f"INSERT INTO heap VALUES ({key}, '{name}')"]),
        chosen.choice(["RELEASE inside", "RELEASE inside", "ROLLBACK TO inside"]),
        chosen.choice(
            [
                f"UPDATE heap SET name = '{name}' WHERE id = {key}",
                f"DELETE FROM heap WHERE ctid = (SELECT min(ctid) FROM heap WHERE id = {key})",
            ]
        ),
    ]


def change_much(one: Query) -> None:
    """What a second reading shows and a first one does not; writers are locked out meanwhile."""
    one.sql(
        "DO $$ BEGIN LOCK TABLE item, heap IN SHARE ROW EXCLUSIVE MODE; "
        "DELETE FROM item WHERE id % 7 = 0; DELETE FROM heap WHERE id % 7 = 0; "
        "UPDATE item SET name = 'other' WHERE id % 5 = 0; UPDATE heap SET name = 'other' WHERE id % 5 = 0; "
        "INSERT INTO item SELECT g, 'more' FROM generate_series(1001, 1020) g ON CONFLICT DO NOTHING; "
        "INSERT INTO heap SELECT g, 'more' FROM generate_series(1001, 1020) g; END $$"
    )


def counted(rows: list[Row], table: str) -> Counter[tuple[str, str]]:
    """What a table holds: the rows and all changes in their order, each taken at its word."""
    held: Counter[tuple[str, str]] = Counter()
    names: dict[str, str] = {}  # by key
    for row in sorted((row for row in rows if row["table"] == table), key=_place):
        if row["op"] == "t":
            held.clear()
            names.clear()
        if row["op"] in "du":
            old = dict(row["before"] or row["after"])
            assert table == "heap" or old["id"] in names, f"there is none for {row}"
            gone = old["id"], old["name"] if table == "heap" else names.pop(old["id"])
            assert held[gone] > 0, f"there is no {gone} for {row}"
            held[gone] -= 1
        if row["op"] in "rcu":
            new = dict(row["after"])
            assert table == "heap" or new["id"] not in names, f"there is one already for {row}"
            names[new["id"]] = new["name"]
            held[new["id"], new["name"]] += 1
    return +held


def _place(row: Row) -> tuple[int, int]:
    return row["source"]["commit_lsn"], row["source"]["commit_seq"]


def in_table(url: str, table: str) -> Counter[tuple[str, str]]:
    with connect(url) as connection:
        return Counter(map(tuple, execute(connection, f"SELECT id::text, name FROM {table}")))


def check(one: Killed) -> None:
    """Everything has come, and is what the tables hold."""
    one.sql(END)
    one.until(lambda: any(map(is_end, one.rows)))
    for table in ("item", "heap"):
        assert counted(one.rows, table) == in_table(one.url, table)


def is_end(row: Row) -> bool:
    """Whether it is what `END` writes."""
    return bool(row["op"] == "c" and dict(row["after"])["id"] == "-1")
