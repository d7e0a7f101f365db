"""What the peers lose or falsify: the numbered holes of flusso, and what PGSync's users report.

Documents are backfilled, then rebuilt only where resolution leads, from the old and new rows of a
transaction. What they must be stands here as it is written in the file, made by nobody's code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from headrace.assembly.assembler import Assembler
from headrace.catalog import bind, complete, read_catalog
from headrace.model.changes import CHANGES_SCHEMA, key_of_id
from headrace.model.names import CtidRange
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver, plan_resolution
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions, mapping
from reference.touched import gathered

TABLES = (
    "CREATE SCHEMA east",
    "CREATE SCHEMA west",
    'CREATE SCHEMA "North West"',
    "CREATE TABLE east.item (id int PRIMARY KEY, name text, owner int)",
    "CREATE TABLE west.item (code text PRIMARY KEY, title text, owner int)",
    'CREATE TABLE "North West"."Item Note" ("Id" int PRIMARY KEY, "itemId" int, "select" text)',
    "CREATE TABLE account (tenant text, no int, name text, PRIMARY KEY (tenant, no))",
    "CREATE TABLE entry (id int PRIMARY KEY, tenant text, account_no int, amount numeric)",
    "CREATE TABLE person (id int PRIMARY KEY, name text, boss_id int)",
    "CREATE TABLE friendship (id int PRIMARY KEY, one int, other int)",
    "CREATE TABLE airport (code char(3) PRIMARY KEY, city text)",
    "CREATE TABLE flight (id uuid PRIMARY KEY, leaves char(3), arrives char(3))",
    "CREATE TABLE tag (id int PRIMARY KEY, name text, shown bool)",
    "CREATE TABLE tagging (id int PRIMARY KEY, person_id int, tag_id int)",
    """CREATE TABLE value (id int PRIMARY KEY, at timestamp, price money, raw bytea, exact numeric,
                           float float8, data jsonb)""",
)
KEYS = {
    "east.item": ("id",),
    "west.item": ("code",),
    '"North West"."Item Note"': ("Id",),
    "public.account": ("tenant", "no"),
    "public.entry": ("id",),
    "public.person": ("id",),
    "public.friendship": ("id",),
    "public.airport": ("code",),
    "public.flight": ("id",),
    "public.tag": ("id",),
    "public.tagging": ("id",),
    "public.value": ("id",),
}
FILL = (
    "INSERT INTO east.item VALUES (1, 'e1', 7), (2, 'e2', 8)",
    "INSERT INTO west.item VALUES ('1', 'w1', 1), ('b', 'w2', 2)",
    """INSERT INTO "North West"."Item Note" VALUES (5, 1, 'n5')""",
    "INSERT INTO account VALUES ('a:b', 1, 'one'), ('a', 2, 'two')",
    "INSERT INTO entry VALUES (1, 'a:b', 1, 1.50), (2, 'a', 2, 2), (3, 'a', 9, 3)",
    "INSERT INTO person VALUES (1, 'Ann', NULL), (2, 'Bob', 1), (3, 'Cid', 2)",
    "INSERT INTO friendship VALUES (1, 1, 2), (2, 2, 3)",
    "INSERT INTO airport VALUES ('VIE', 'Vienna'), ('CDG', 'Paris'), ('JFK', 'New York')",
    """INSERT INTO flight VALUES ('00000000-0000-0000-0000-000000000001', 'VIE', 'CDG'),
                                ('00000000-0000-0000-0000-000000000002', 'CDG', 'JFK')""",
    "INSERT INTO tag VALUES (1, 'x', true), (2, 'y', false), (3, 'z', true)",
    "INSERT INTO tagging VALUES (10, 1, 1), (11, 1, 2), (12, 2, 1)",
    """INSERT INTO value VALUES (1, '2024-02-29 12:34:56.789012', '12.30', '\\x00ff10',
        12345678901234567890.12345678901234567890, 0.30000000000000004, '{"n": 12345678901234567890.10}')""",
)
ONE, TWO = (f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))

SCHEMAS = {
    "items": """
version: 1
table: item
schema: east
fields:
  - text: name
  - has_one: same
    table: item
    schema: west
    primary_key: code
    foreign_key: owner
    fields: [{text: title}]
  - has_many: notes
    table: '"Item Note"'
    schema: '"North West"'
    primary_key: '"Id"'
    foreign_key: '"itemId"'
    fields: [{text: select}]
""",
    "accounts": """
version: 1
table: account
primary_key: [tenant, "no"]
fields:
  - text: name
  - has_many: entries
    table: entry
    primary_key: id
    foreign_key: [tenant, account_no]
    fields: [{decimal: amount}]
""",
    "entries": """
version: 1
table: entry
primary_key: id
fields:
  - belongs_to: account
    table: account
    primary_key: [tenant, "no"]
    column: [tenant, account_no]
    fields: [{text: name}]
""",
    "people": """
version: 1
table: person
primary_key: id
fields:
  - text: name
  - belongs_to: boss
    table: person
    column: boss_id
    primary_key: id
    fields: [{text: name}]
  - many_to_many: friends
    table: person
    primary_key: id
    through: {table: friendship, left_key: one, right_key: other}
    fields:
      - text: name
      - has_many: team
        table: person
        primary_key: id
        foreign_key: boss_id
        fields: [{text: name}]
  - many_to_many: tags
    table: tag
    primary_key: id
    through: {table: tagging, left_key: person_id, right_key: tag_id}
    fields: [{text: name}]
  - ids: shownTags
    table: tag
    element_type: long
    through: {table: tagging, left_key: person_id, right_key: tag_id}
    filters: [{column: shown, op: eq, value: true}]
""",
    "flights": """
version: 1
table: flight
primary_key: id
fields:
  - belongs_to: leaves
    table: airport
    primary_key: code
    fields: [{text: city}]
  - belongs_to: arrives
    table: airport
    primary_key: code
    fields: [{text: city}]
""",
    "airports": """
version: 1
table: airport
primary_key: code
fields:
  - text: city
  - count: departures
    table: flight
    foreign_key: leaves
  - count: arrivals
    table: flight
    foreign_key: arrives
""",
    "values": """
version: 1
table: value
primary_key: id
fields:
  - timestamp: at
  - decimal: price
  - binary: raw
  - decimal: exact
  - double: float
  - json: data
  - constant: seven
    value: 7
""",
}


class Followed:
    """Documents of all indexes: one deployment, one plan for all of them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.writer = psycopg.connect(url, autocommit=True)
        self.session = ReadSession(url)
        specs = [self._load(folder, name, text) for name, text in SCHEMAS.items()]
        catalog = read_catalog(self.session, [table for spec in specs for table in spec.tables()])
        assert [bind(spec, catalog) for spec in specs] == [[]] * len(specs)
        self.specs = {spec.name: complete(spec, catalog) for spec in specs}
        self.assemblers = {name: Assembler(self.session, spec, catalog) for name, spec in self.specs.items()}
        self.resolver = Resolver(self.session, plan_resolution(self.specs.values(), catalog))
        self.documents: dict[str, dict[str, Any]] = {}

    @staticmethod
    def _load(folder: Path, name: str, text: str) -> IndexSpec:
        file = folder / f"{name}.schema.yml"
        file.write_text(text)
        return load_schema(file, name)

    def close(self) -> None:
        self.session.close()
        self.writer.close()

    def seed(self) -> None:
        """The rows as they are at the beginning, and all documents of them."""
        self.writer.execute(f"TRUNCATE {', '.join(KEYS)}".encode())
        for statement in FILL:
            self.writer.execute(statement.encode())
        for name, one in self.assemblers.items():
            self.documents[name] = {
                made.id: parsed(made.body) for made in one.assemble_range(CtidRange(0, None), 1)
            }

    def rows(self) -> dict[str, dict[tuple[object, ...], dict[str, Any]]]:
        with self.writer.cursor(row_factory=dict_row) as cursor:
            return {
                name: {
                    tuple(row[part] for part in key): row
                    for row in cursor.execute(f"SELECT * FROM {name}".encode()).fetchall()
                }
                for name, key in KEYS.items()
            }

    def run(self, *statements: str) -> dict[str, set[str]]:
        """Run a transaction and follow it; the ids that were rebuilt, by index."""
        before = self.rows()
        with self.writer.transaction():
            for statement in statements:
                self.writer.execute(statement.encode())
        after = self.rows()
        return self.apply(
            [
                change(name, before[name].get(key), after[name].get(key))
                for name in KEYS
                for key in before[name].keys() | after[name].keys()
                if before[name].get(key) != after[name].get(key)
            ]
        )

    def apply(self, changes: Sequence[Mapping[str, object]]) -> dict[str, set[str]]:
        filled = [{"_commit_lsn": 1, "_commit_seq": place, **one} for place, one in enumerate(changes)]
        rebuilt: dict[str, set[str]] = {}
        touched = gathered(self.resolver.resolve(pa.Table.from_pylist(filled, schema=CHANGES_SCHEMA)))
        for index, found in touched.items():
            width = len(self.specs[index].primary_key)
            known = [key_of_id(one, width) for one in self.documents[index]] if found.everything else []
            for made in self.assemblers[index].assemble([*found.keys, *known], 1):
                self.documents[index].pop(made.id, None)
                rebuilt.setdefault(index, set()).add(made.id)
                if made.body is not None:
                    self.documents[index][made.id] = parsed(made.body)
        return rebuilt


def change(name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, object]:
    schema, _, table = name.rpartition(".")
    return {
        "schema": schema.strip('"'),
        "table": table.strip('"'),
        "op": "c" if old is None else "d" if new is None else "u",
        "before": texts(old),
        "after": texts(new),
    }


def texts(row: dict[str, Any] | None) -> list[tuple[str, str | None]] | None:
    if row is None:
        return None
    return [(column, None if value is None else str(value)) for column, value in row.items()]


def parsed(body: bytes | None) -> Any:
    return json.loads(body or b"", parse_float=Decimal)


@pytest.fixture(scope="module")
def shared(make_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    found = Followed(make_database(TABLES), tmp_path_factory.mktemp("schemas"))
    yield found
    found.close()


@pytest.fixture
def followed(shared: Followed) -> Followed:
    shared.seed()
    return shared


def test_a_deleted_and_a_moved_child_leave_the_old_parent(followed: Followed) -> None:
    """Flusso's hole 4; PGSync #552, #569, #115."""
    followed.run("UPDATE entry SET tenant = 'a:b', account_no = 1 WHERE id = 2")
    assert followed.documents["accounts"] == {
        "a%3Ab:1": {"name": "one", "entries": [{"amount": Decimal("1.50")}, {"amount": 2}]},
        "a:2": {"name": "two", "entries": []},
    }
    followed.run("DELETE FROM entry WHERE id = 1")
    assert followed.documents["accounts"]["a%3Ab:1"]["entries"] == [{"amount": 2}]


def test_a_junction_row_with_a_key_of_its_own_comes_moves_and_goes(followed: Followed) -> None:
    """Flusso's hole 4, PGSync's pull request 392."""
    followed.run("INSERT INTO tagging VALUES (13, 3, 3)")
    assert followed.documents["people"]["3"]["tags"] == [{"name": "z"}]
    followed.run("UPDATE tagging SET person_id = 2 WHERE id = 13")
    assert followed.documents["people"]["3"]["tags"] == []
    assert followed.documents["people"]["2"]["tags"] == [{"name": "x"}, {"name": "z"}]
    followed.run("DELETE FROM tagging WHERE id = 12")
    assert followed.documents["people"]["2"]["tags"] == [{"name": "z"}]


def test_a_row_that_refers_to_its_own_table_rebuilds_the_referrers(followed: Followed) -> None:
    """Flusso's hole 5."""
    followed.run("UPDATE person SET name = 'Anna' WHERE id = 1")
    assert followed.documents["people"]["1"]["name"] == "Anna"
    assert followed.documents["people"]["2"]["boss"] == {"name": "Anna"}
    followed.run("UPDATE person SET boss_id = 1 WHERE id = 3")
    assert followed.documents["people"]["3"]["boss"] == {"name": "Anna"}


def test_a_self_reference_through_a_junction(followed: Followed) -> None:
    """PGSync #63; and the root stands inside of its own chain (PGSync #586): people of friends of people."""
    assert followed.documents["people"]["1"]["friends"] == [{"name": "Bob", "team": [{"name": "Cid"}]}]
    followed.run("INSERT INTO friendship VALUES (3, 3, 1)", "UPDATE person SET name = 'Bo' WHERE id = 2")
    assert followed.documents["people"]["1"]["friends"] == [{"name": "Bo", "team": [{"name": "Cid"}]}]
    assert followed.documents["people"]["3"]["friends"] == [{"name": "Ann", "team": [{"name": "Bo"}]}]
    followed.run("UPDATE person SET boss_id = NULL WHERE id = 3")
    assert followed.documents["people"]["1"]["friends"] == [{"name": "Bo", "team": []}]


def test_two_references_to_one_table(followed: Followed) -> None:
    """PGSync #622."""
    followed.run("UPDATE airport SET city = 'Lutetia' WHERE code = 'CDG'")
    assert followed.documents["flights"] == {
        ONE: {"leaves": {"city": "Vienna"}, "arrives": {"city": "Lutetia"}},
        TWO: {"leaves": {"city": "Lutetia"}, "arrives": {"city": "New York"}},
    }
    followed.run(f"UPDATE flight SET arrives = 'VIE' WHERE id = '{TWO}'")
    assert followed.documents["airports"]["JFK"] == {"city": "New York", "departures": 0, "arrivals": 0}
    assert followed.documents["airports"]["VIE"] == {"city": "Vienna", "departures": 1, "arrivals": 1}


def test_a_truncate_empties_documents(followed: Followed) -> None:
    """Flusso's hole 8: it is only logged."""
    for table in ("tag", "person"):
        followed.writer.execute(f"TRUNCATE {table}")
        gone = {"schema": "public", "table": table, "op": "t", "before": None, "after": None}
        followed.apply([gone])
        if table == "tag":
            assert [one["tags"] for one in followed.documents["people"].values()] == [[], [], []]
    assert followed.documents["people"] == {}


def test_a_key_of_several_columns_of_a_root_and_of_a_relation(followed: Followed) -> None:
    """Flusso's hole 10: not backfilled, yet marked as backfilled; on a relation's target it is fatal."""
    assert followed.documents["accounts"].keys() == {"a%3Ab:1", "a:2"}
    assert followed.documents["entries"] == {
        "1": {"account": {"name": "one"}},
        "2": {"account": {"name": "two"}},
        "3": {"account": None},
    }
    rebuilt = followed.run("UPDATE account SET no = 9 WHERE tenant = 'a'")
    assert rebuilt["accounts"] == {"a:2", "a:9"}
    assert followed.documents["accounts"].keys() == {"a%3Ab:1", "a:9"}
    assert followed.documents["accounts"]["a:9"]["entries"] == [{"amount": 3}]
    assert followed.documents["entries"]["2"] == {"account": None}
    assert followed.documents["entries"]["3"] == {"account": {"name": "two"}}


def test_tables_of_one_name_in_two_schemas_and_names_in_mixed_case(followed: Followed) -> None:
    """Flusso's hole 12, PGSync #544: their key columns differ, and a join leads from one to the other."""
    assert followed.documents["items"]["1"] == {
        "name": "e1",
        "same": {"title": "w1"},
        "notes": [{"select": "n5"}],
    }
    rebuilt = followed.run("UPDATE west.item SET title = 'W1' WHERE code = '1'")
    assert rebuilt == {"items": {"1"}}
    assert followed.documents["items"]["1"]["same"] == {"title": "W1"}
    followed.run("UPDATE west.item SET owner = 2 WHERE code = '1'", "DELETE FROM west.item WHERE code = 'b'")
    assert followed.documents["items"]["1"]["same"] is None
    assert followed.documents["items"]["2"]["same"] == {"title": "W1"}
    followed.run("""UPDATE "North West"."Item Note" SET "itemId" = 2""", "DELETE FROM east.item WHERE id = 1")
    assert followed.documents["items"] == {
        "2": {"name": "e2", "same": {"title": "W1"}, "notes": [{"select": "n5"}]}
    }


def test_values_arrive_with_every_digit(followed: Followed) -> None:
    """Flusso's hole 14: refused, hexadecimal, rounded, doubles, and a 7 that becomes a text."""
    [made] = followed.assemblers["values"].assemble([("1",)], 1)
    assert made.body == (
        b'{"at":"2024-02-29T12:34:56.789012","price":12.30,"raw":"AP8Q",'
        b'"exact":12345678901234567890.12345678901234567890,"float":0.30000000000000004,'
        b'"data":{"n": 12345678901234567890.10},"seven":7}'
    )


def test_json_holds_any_key(followed: Followed) -> None:
    """Flusso's hole 15: a json field inherits the strict mapping of its document."""
    made = mapping(followed.specs["values"], IndexOptions())["mappings"]
    assert made["dynamic"] == "strict"
    assert made["properties"]["data"] == {"type": "object", "dynamic": True}


def test_collected_keys_through_a_junction_pass_their_filters(followed: Followed) -> None:
    """Flusso's hole 16: filters beside `through` are ignored."""
    assert followed.documents["people"]["1"]["shownTags"] == [1]
    followed.run("UPDATE tag SET shown = true WHERE id = 2")
    assert followed.documents["people"]["1"]["shownTags"] == [1, 2]


def test_indexes_whose_keys_have_other_types_live_in_one_deployment(followed: Followed) -> None:
    """Flusso's hole 22: they cannot be backfilled together. One statement changes rows of all of them."""
    assert {name: len(documents) for name, documents in followed.documents.items()} == {
        "items": 2,
        "accounts": 2,
        "entries": 3,
        "people": 3,
        "flights": 2,
        "airports": 3,
        "values": 1,
    }
    rebuilt = followed.run(
        f"DELETE FROM flight WHERE id = '{ONE}'",
        "DELETE FROM account WHERE no = 1",
        "DELETE FROM person WHERE id = 3",
        "DELETE FROM airport WHERE code = 'JFK'",
    )
    assert rebuilt["flights"] == {ONE, TWO}
    assert rebuilt["accounts"] == {"a%3Ab:1"}
    assert rebuilt["airports"] == {"VIE", "CDG", "JFK"}
    assert followed.documents["airports"] == {
        "VIE": {"city": "Vienna", "departures": 0, "arrivals": 0},
        "CDG": {"city": "Paris", "departures": 1, "arrivals": 0},
    }


def test_a_value_that_no_double_holds_is_made_whole(followed: Followed) -> None:
    """Flusso's hole 23: it ends the process. Whether the index takes it is decided for its document alone."""
    followed.run("UPDATE value SET exact = 1e400::numeric")
    [made] = followed.assemblers["values"].assemble([("1",)], 1)
    assert f'"exact":1{"0" * 400},' in (made.body or b"").decode()


def test_a_large_value_that_an_update_left_alone_is_whole(followed: Followed) -> None:
    """Debezium 5069: the log holds no large value that did not change, and a placeholder comes out."""
    followed.writer.execute("""UPDATE value SET data = jsonb_build_object('large', repeat('x', 3000000))""")
    before = followed.rows()["public.value"][1,]
    followed.writer.execute("UPDATE value SET price = 45.6")
    update = change("public.value", before, followed.rows()["public.value"][1,])
    held = {**update, "after": [one for one in texts(before) or [] if one[0] != "data"]}
    assert followed.apply([held]) == {"values": {"1"}}
    made = followed.documents["values"]["1"]
    assert (made["price"], len(made["data"]["large"])) == (Decimal("45.60"), 3_000_000)
