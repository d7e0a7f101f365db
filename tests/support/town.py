"""A deployment of three indexes whose tables and files change while other processes write.

`people` reads the tables `person` and `visit`, which change. `goods` and `notes` read others, and stay live.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import urllib3

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from support.driven_run import DrivenRun
from support.pauses import Pauses, in_thread
from support.shop_oracle import Documents, actual_documents, differences

TABLES = """
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE person (id int PRIMARY KEY, name text, city text, mood mood, seen int NOT NULL DEFAULT 0);
CREATE TABLE visit (person_id int, day int, score int, PRIMARY KEY (person_id, day)) PARTITION BY RANGE (day);
CREATE TABLE visit_1 PARTITION OF visit FOR VALUES FROM (0) TO (10);
CREATE TABLE visit_2 PARTITION OF visit FOR VALUES FROM (10) TO (20);
CREATE TABLE good (id int PRIMARY KEY, label text, price bigint NOT NULL DEFAULT 0);
CREATE TABLE note (id int PRIMARY KEY, good_id int NOT NULL, text text);
CREATE UNIQUE INDEX note_identity ON note (good_id, id);
ALTER TABLE note REPLICA IDENTITY USING INDEX note_identity;
CREATE TABLE spare (id int PRIMARY KEY, what text);
INSERT INTO person SELECT i, 'name ' || i, 'city ' || i % 7, 'low' FROM generate_series(1, {people}) i;
INSERT INTO visit SELECT 1 + i % {people}, i % 20, i FROM generate_series(1, {people} - 1) i;
INSERT INTO good SELECT i, 'label ' || i FROM generate_series(1, 50) i;
INSERT INTO note SELECT i, 1 + i % 50, 'text ' || i FROM generate_series(1, 200) i;
INSERT INTO spare SELECT i, 'what ' || i FROM generate_series(1, 40) i
"""
PEOPLE = """\
version: 1
table: person
primary_key: id
fields:
  - keyword: name
  - keyword: city
  - enum: mood
  - integer: seen
  - has_many: visits
    table: visit
    primary_key: [person_id, day]
    foreign_key: person_id
    fields: [{ integer: day }, { integer: score }]
"""
GOODS = """\
version: 1
table: good
primary_key: id
fields: [{ keyword: label }, { long: price }]
"""
NOTES = """\
version: 1
table: note
primary_key: id
fields:
  - keyword: text
  - belongs_to: good
    table: good
    column: good_id
    primary_key: id
    fields: [{ keyword: label }, { long: price }]
"""
SPARES = """\
version: 1
table: spare
primary_key: id
fields: [{ keyword: what }]
"""
_WRITES = (
    "UPDATE person SET seen = seen + 1 WHERE id = 1 + {n} % 40",
    "UPDATE visit SET score = {n} WHERE person_id = 1 + {n} % 40",
    "UPDATE note SET text = 'written ' || {n} WHERE id = 1 + {n} % 200",
    "UPDATE person SET city = 'moved ' || {n} WHERE id = 1 + {n} % 30",
    "INSERT INTO note VALUES (1000 + {n}, 1 + {n} % 50, 'new'); DELETE FROM note WHERE id = 900 + {n}",
)
"""What writers do beside the counted price of the good 1; what a table refuses meanwhile is not done."""

Column = tuple[str, str]
"""A field of `people`, and the SQL expression of its value."""


@contextlib.contextmanager
def town_on(postgres: EmbeddedPostgres, sink: str, folder: Path, name: str) -> Iterator[Town]:
    """A town with a database of its own; at the end its run is ended, its slot and database dropped."""
    town = Town(folder, postgres.create_database(name), sink, name)
    try:
        yield town
    finally:
        town.close()
        with connect(town.url) as connection:
            drop_slot(connection, name, timeout=60)
        postgres.drop_database(name)


class Town(DrivenRun):
    """The deployment, and what its documents should be.

    Args:
        folder: for files, output and marks.
        url: an empty database.
        sink: the cluster.
        name: of slot, publication and prefix.
        people: how many rows `person` has.

    Attributes:
        columns: the scalar fields of `people` that the oracle expects.
        indexes: the indexes that the oracle compares.
    """

    def __init__(self, folder: Path, url: str, sink: str, name: str, *, people: int = 300) -> None:
        self.url, self.sink, self.prefix, self.folder = url, sink, f"{name}_", folder
        self.columns: list[Column] = [
            *(("name", "name"), ("city", "city"), ("mood", "mood::text"), ("seen", "seen"))
        ]
        self.indexes = ["people", "goods", "notes"]
        self._http = urllib3.PoolManager(maxsize=4)
        for index, text in (("people", PEOPLE), ("goods", GOODS), ("notes", NOTES), ("spares", SPARES)):
            self.write_schema(index, text)
        self.write_config(self.indexes)
        self.sql(TABLES.format(people=people))
        super().__init__(folder / "headrace.toml", name, folder, ready_within=400)

    def write_config(self, indexes: Sequence[str], more: str = "") -> None:
        """Write the deployment file with these indexes; `more` are lines of `[source]`."""
        text = (
            f'prefix = "{self.prefix}"\n[source]\ntype = "postgres"\nreplica_identity = "auto"\n'
            f"connection_url = {json.dumps(self.url)}\n{more}"
            f'[sinks.primary]\ntype = "opensearch"\nurl = "{self.sink}"\nnumber_of_replicas = 0\n'
        )
        for index in indexes:
            text += f'[[index]]\nname = "{index}"\nschema = "{index}.yml"\n'
        (self.folder / "headrace.toml").write_text(text)

    def write_schema(self, index: str, text: str) -> None:
        """Write a schema file."""
        (self.folder / f"{index}.yml").write_text(text)

    def sql(self, text: str) -> None:
        """Run each statement in a transaction of its own."""
        with connect(self.url) as connection:
            for statement in text.split(";"):
                execute(connection, statement)

    def expected(self) -> dict[str, Documents]:
        """The documents of each index, put together from plain SELECTs."""
        listed = ", ".join(f"{sql} AS {name}" for name, sql in self.columns)
        with connect(self.url) as connection:
            people = execute(connection, f"SELECT id, {listed} FROM person") if self.columns else []
            visits = execute(connection, "SELECT person_id, day, score FROM visit ORDER BY person_id, day")
            goods = execute(connection, "SELECT id, label, price FROM good")
            notes = execute(connection, "SELECT id, good_id, text FROM note")
            spares = execute(connection, "SELECT id, what FROM spare")
        of_good = {id_: {"label": label, "price": price} for id_, label, price in goods}
        names = [name for name, _ in self.columns]
        documents: dict[str, Documents] = {
            "people": {
                str(id_): {
                    **dict(zip(names, values, strict=True)),
                    "visits": [
                        {"day": day, "score": score} for person, day, score in visits if person == id_
                    ],
                }
                for id_, *values in people
            },
            "goods": {str(id_): good for id_, good in of_good.items()},
            "notes": {str(id_): {"text": text, "good": of_good.get(good)} for id_, good, text in notes},
            "spares": {str(id_): {"what": what} for id_, what in spares},
        }
        return {index: documents[index] for index in self.indexes}

    def wrong(self) -> list[str]:
        """What differs from the oracle in any index; a few lines for each."""
        lines = []
        for index, documents in self.expected().items():
            try:
                found = differences(documents, actual_documents(self.sink, self.prefix + index))
            except LookupError as error:
                found = [str(error)]
            lines += [f"{index}: {line}" for line in found]
        return lines

    def converges(self, seconds: float = 180) -> None:
        """Return once every index is what the database says; no one may write meanwhile."""
        end = time.monotonic() + seconds
        while wrong := self.wrong():
            assert time.monotonic() < end, "\n".join([*wrong, self.last_output()])
            self.assert_running()
            time.sleep(0.2)

    def generation(self, index: str) -> str:
        """The generation that readers see."""
        found = urllib3.request("GET", f"{self.sink}/{self.prefix}{index}/_alias").json()
        return next(iter(found)) if "error" not in found else ""

    def of_board(self, index: str) -> dict[str, Any]:
        """What `/status` says about an index; empty where it shows none."""
        return next((shown for shown in self.status().get("indexes", ()) if shown["name"] == index), {})

    def wait_next_generation(self, index: str, before: str, seconds: float = 180) -> None:
        """Return once readers see another generation."""
        self.wait_until(
            lambda: self.generation(index) not in ("", before), f"still serves {before} of {index}", seconds
        )

    def said(self, text: str) -> bool:
        """Whether the run has printed this."""
        return text in self.output.read_text()

    def wait_said(self, text: str, seconds: float = 120) -> None:
        """Return once the run has printed this."""
        self.wait_until(lambda: self.said(text), f"did not say {text!r}", seconds)

    @contextlib.contextmanager
    def load(self, per_second: float = 50) -> Iterator[Pauses]:
        """Let writers commit while this is entered, and watch how `goods` and `notes` follow."""
        pauses = Pauses(lambda: self._price("goods", "1"), lambda: self._price("notes", "50"))
        with in_thread(lambda stop: self._write(stop, per_second)), pauses.measuring():
            yield pauses

    def _write(self, stop: threading.Event, per_second: float) -> None:
        number, begin = 0, time.monotonic()
        with connect(self.url) as connection:
            while not stop.is_set():
                number += 1
                execute(connection, "UPDATE good SET price = price + 1 WHERE id = 1")
                for statement in _WRITES[number % len(_WRITES)].format(n=number).split(";"):
                    with contextlib.suppress(psycopg.Error):
                        execute(connection, statement)
                stop.wait(max(0.0, begin + 2 * number / per_second - time.monotonic()))

    def _price(self, index: str, id_: str) -> int | None:
        answer = self._http.request("GET", f"{self.sink}/{self.prefix}{index}/_doc/{id_}", timeout=10)
        if answer.status != 200:
            return None
        found = answer.json()["_source"]
        price: int | None = found["price"] if index == "goods" else found["good"]["price"]
        return price
