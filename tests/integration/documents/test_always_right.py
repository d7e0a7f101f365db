"""Documents that are only rebuilt where resolution leads are the same as those a naive evaluation makes."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, key_of_id
from headrace.model.names import CtidRange, TableName
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver, plan_resolution, required_columns
from headrace.schema.tree import IndexSpec
from integration.documents import people
from reference.touched import gathered

FILL = (
    """INSERT INTO person VALUES (1, 'Ada', NULL, 2, NULL), (2, 'Bob', 1, NULL, NULL), (3, 'Cid', 2, 2, NULL),
       (4, 'Dot', 2, 4, '2026-01-01'), (5, 'nobody', 1, 1, NULL), (6, 'Ada', 3, 1, NULL)""",
    """INSERT INTO badge SELECT i, 1 + i % 7, nullif(i * 7 % 5, 0), nullif('k' || i % 3, 'k0')
       FROM generate_series(1, 14) i""",
    """INSERT INTO tag VALUES ('x', 'Ex'), ('y:%', E'W\\\\h"y'), ('Z', NULL)""",
    """INSERT INTO tagging VALUES (1, 1, 'x'), (2, 1, 'y:%'), (3, 2, 'x'), (4, 3, 'none'), (5, 1, 'x'),
       (6, 3, 'Z')""",
    """INSERT INTO "Order" VALUES ('a:%', 1, 1, 'o''1'), ('a:%', 2, 2, NULL), ('b', 1, 1, 'é'),
       ('b', 3, NULL, '')""",
    """INSERT INTO line VALUES ('a:%', 1, 1, 1.50, 'x'), ('a:%', 1, 2, 2, NULL), ('b', 1, 1, NULL, 'y:%'),
       ('b', 3, 1, 10, 'x'), ('b', 3, 2, 10.0, 'x'), ('b', 3, 3, 11, 'Z'), ('c', 9, 1, 1, 'x')""",
)
Tables = dict[str, list[people.Row]]


class World:
    """A database, a store that follows it, and the changes that are still to be applied."""

    def __init__(self, url: str, folder: Path) -> None:
        self.writer = psycopg.connect(url, autocommit=True)
        self.session = ReadSession(url)
        self.specs: list[IndexSpec]
        self.catalog: Catalog
        self.specs, self.catalog = people.load(self.session, folder)
        self.required = required_columns(self.specs, self.catalog)
        self.resolver = Resolver(self.session, plan_resolution(self.specs, self.catalog))
        self.assemblers = {spec.name: Assembler(self.session, spec, self.catalog) for spec in self.specs}
        self.widths = {spec.name: len(spec.primary_key) for spec in self.specs}
        self.store: dict[str, dict[str, object]] = {}
        self.old_sides = True
        self.reset()

    def close(self) -> None:
        self.session.close()
        self.writer.close()

    def reset(self) -> None:
        for name in people.KEYS:
            self.writer.execute(f'TRUNCATE "{name}"')
        for statement in FILL:
            self.writer.execute(statement.encode())
        for name in self.assemblers:
            self.rebuild(name)

    def rebuild(self, name: str) -> None:
        operations = self.assemblers[name].assemble_range(CtidRange(0, None), 1)
        self.store[name] = {one.id: parsed(one.body) for one in operations}

    def run(self, *statements: str) -> list[dict[str, object]]:
        """Run a transaction; what the log would carry of it."""
        before = people.rows(self.writer)
        with self.writer.transaction():
            for statement in statements:
                self.writer.execute(statement.encode())
        return list(self._differences(before, people.rows(self.writer)))

    def _differences(self, before: Tables, after: Tables) -> Iterator[dict[str, object]]:
        for name, key in people.KEYS.items():
            old = {tuple(row[part] for part in key): row for row in before[name]}
            new = {tuple(row[part] for part in key): row for row in after[name]}
            for one in old.keys() | new.keys():
                if old.get(one) != new.get(one):
                    yield self._change(name, old.get(one), new.get(one))

    def _change(self, name: str, old: people.Row | None, new: people.Row | None) -> dict[str, object]:
        """As under a replica identity of exactly the required columns: absent where none of them changed."""
        carried = {*self.required[TableName("public", name)].columns, *people.KEYS[name]}
        before = None if old is None else texts({column: old[column] for column in carried})
        if old and new and all(old[column] == new[column] for column in carried):
            before = None
        row = old or new or {}
        leaf = ("line_a" if row["shop"] == "a:%" else "line_rest") if name == "line" else name
        return {
            "schema": "public",
            "table": leaf,
            "op": "c" if old is None else "d" if new is None else "u",
            "before": before if self.old_sides or new is None else None,
            "after": None if new is None else texts(new),
        }

    def apply(self, changes: Sequence[Mapping[str, object]]) -> None:
        for index, touched in gathered(self.resolver.resolve(table_of(changes))).items():
            keys = touched.keys
            if touched.everything:  # what a sink can enumerate is what it holds: no new document
                width = self.widths[index]
                keys = [*keys, *(key_of_id(one, width) for one in self.store[index])]
            for one in self.assemblers[index].assemble(keys, 1):
                self.store[index].pop(one.id, None)
                if one.body is not None:
                    self.store[index][one.id] = parsed(one.body)

    def expected(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            json.dumps(people.evaluate(people.rows(self.writer)), default=float), parse_float=Decimal
        )
        return found


def texts(row: dict[str, object]) -> list[tuple[str, str | None]]:
    return [(column, None if value is None else str(value)) for column, value in row.items()]


def table_of(changes: Sequence[Mapping[str, object]]) -> pa.Table:
    filled = [{"_commit_lsn": 1, "_commit_seq": number, **one} for number, one in enumerate(changes)]
    return pa.Table.from_pylist(filled, schema=CHANGES_SCHEMA)


def parsed(body: bytes | None) -> object:
    return json.loads(body or b"", parse_float=Decimal)


@pytest.fixture(scope="module")
def shared_world(
    make_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    world = World(make_database(people.TABLES), tmp_path_factory.mktemp("schemas"))
    yield world
    world.close()


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.old_sides = True
    shared_world.resolver = Resolver(
        shared_world.session, plan_resolution(shared_world.specs, shared_world.catalog)
    )
    shared_world.reset()
    return shared_world


STATEMENTS = {
    "a root appears": "INSERT INTO person VALUES (9, 'New', 1, 1)",
    "a root changes": "UPDATE person SET name = 'Eve' WHERE id = 1",
    "a root goes": "DELETE FROM person WHERE id = 2",
    "a root's key changes": "UPDATE person SET id = 77 WHERE id = 1",
    "a root is softly deleted": "UPDATE person SET left_on = '2026-02-02' WHERE id = 1",
    "a soft delete is undone": "UPDATE person SET left_on = NULL WHERE id = 4",
    "a root leaves the filter": "UPDATE person SET name = 'nobody' WHERE id = 3",
    "a root enters the filter": "UPDATE person SET name = 'somebody' WHERE id = 5",
    "a self-reference moves": "UPDATE person SET boss_id = 3 WHERE id = 2",
    "a self-reference becomes null": "UPDATE person SET boss_id = NULL WHERE id = 3",
    "a row points at itself": "UPDATE person SET boss_id = id, mentor_id = id",
    "a child appears": "INSERT INTO badge VALUES (99, 2, 5, 'k')",
    "a child changes": "UPDATE badge SET points = 1000 WHERE id = 4",
    "a child goes": "DELETE FROM badge WHERE id = 5",
    "a child moves to another parent": "UPDATE badge SET person_id = 3 WHERE person_id = 2",
    "a child is orphaned": "UPDATE badge SET person_id = NULL WHERE id = 1",
    "a child's key changes": "UPDATE badge SET id = id + 100 WHERE id < 4",
    "a tag is linked": "INSERT INTO tagging VALUES (9, 2, 'y:%')",
    "a tag is unlinked": "DELETE FROM tagging WHERE id = 2",
    "a link moves to another parent": "UPDATE tagging SET person_id = 2 WHERE id = 2",
    "a link moves to another tag": "UPDATE tagging SET tag_code = 'y:%' WHERE id = 3",
    "a tag is renamed": "UPDATE tag SET label = 'Other' WHERE code = 'x'",
    "a tag's key changes": "UPDATE tag SET code = 'none' WHERE code = 'x'",
    "a tag goes": "DELETE FROM tag WHERE code = 'y:%'",
    "an order changes hands": """UPDATE "Order" SET person_id = 2 WHERE shop = 'a:%' AND "No" = 1""",
    "an order's key changes": """UPDATE "Order" SET "No" = 3 WHERE shop = 'a:%'  AND "No" = 1""",
    "an order goes": """DELETE FROM "Order" WHERE shop = 'b'""",
    "a line moves to another order": """UPDATE line SET "orderNo" = 2 WHERE shop = 'a:%' AND pos = 2""",
    "a line moves to another partition": "UPDATE line SET shop = 'a:%' WHERE shop = 'b' AND pos = 3",
    "a line appears": "INSERT INTO line VALUES ('b', 1, 7, 0.1, 'x')",
    "all lines go": "DELETE FROM line",
    "a line's tag changes": "UPDATE line SET tag_code = 'Z'",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_one_statement_reaches_every_document(world: World, statement: str) -> None:
    assert world.store == world.expected()
    changes = world.run(statement)
    assert changes
    world.apply(changes)
    assert world.store == world.expected()


@pytest.mark.parametrize("table", ["person", "badge", "tag", "tagging", "Order", "line"])
def test_a_truncate_touches_everything(world: World, table: str) -> None:
    world.writer.execute(f'TRUNCATE "{table}"')
    change = {"schema": "public", "table": table, "op": "t", "before": None, "after": None}
    world.apply([change])
    assert world.store == world.expected()


@pytest.mark.parametrize("truncated", ["person", "badge", "tag", "tagging", "Order", "line"])
def test_a_truncate_does_not_hide_what_is_new(world: World, truncated: str) -> None:
    """Rows that are inserted in the same batch, before or after it: no sink can enumerate them yet."""
    changes = world.run("INSERT INTO person VALUES (900, 'New', NULL, 1, NULL)")
    truncate = {"schema": "public", "table": truncated, "op": "t", "before": None, "after": None}
    world.writer.execute(f'TRUNCATE "{truncated}"')
    inserted = world.run("INSERT INTO person VALUES (901, 'Newer', NULL, 1, NULL)")
    world.apply([*changes, truncate, *inserted])
    assert world.store == world.expected()


def random_statement(choice: random.Random) -> str:
    person, other = choice.randint(1, 8), choice.randint(1, 8)
    shop, number, position = choice.choice(["a:%", "b", "c"]), choice.randint(1, 3), choice.randint(1, 3)
    tag, points = choice.choice(["x", "y:%", "Z", "none"]), choice.randint(0, 9)
    column = choice.choice(["boss_id", "mentor_id"])
    return choice.choice(
        [
            f"INSERT INTO person VALUES ({person}, 'P{points}', {other}, {points}) ON CONFLICT DO NOTHING",
            f"UPDATE person SET left_on = NULL, boss_id = {other} WHERE id = {person}",
            f"DELETE FROM person WHERE id = {person}",
            f"UPDATE person SET {column} = {other} WHERE id = {person}",
            f"UPDATE person SET left_on = '2026-01-01' WHERE id = {person}",
            f"UPDATE person SET name = 'Q{points}' WHERE id = {person}",
            f"UPDATE badge SET person_id = {person}, points = {points} WHERE id = {other}",
            f"DELETE FROM badge WHERE id = {other}",
            f"INSERT INTO badge VALUES ({other}, {person}, {points}, 'k') ON CONFLICT DO NOTHING",
            f"INSERT INTO tagging VALUES ({other}, {person}, '{tag}') ON CONFLICT DO NOTHING",
            f"UPDATE tagging SET person_id = {person}, tag_code = '{tag}' WHERE id = {other}",
            f"DELETE FROM tagging WHERE person_id = {person}",
            f"UPDATE tag SET label = 'L{points}' WHERE code = '{tag}'",
            f"INSERT INTO tag VALUES ('{tag}', 'new') ON CONFLICT DO NOTHING",
            f"DELETE FROM tag WHERE code = '{tag}'",
            f"""INSERT INTO "Order" VALUES ('{shop}', {number}, {person}, 's') ON CONFLICT DO NOTHING""",
            f"""UPDATE "Order" SET person_id = {person} WHERE "No" = {number}""",
            f"""DELETE FROM "Order" WHERE shop = '{shop}' AND "No" = {number}""",
            f"INSERT INTO line VALUES ('{shop}', {number}, {position}, 1) ON CONFLICT DO NOTHING",
            f"DELETE FROM line WHERE shop = '{shop}' AND pos = {position}",
            f"UPDATE line SET tag_code = '{tag}', qty = {points} WHERE pos = {position}",
        ]
    )


def follow_at_random(world: World, seed: int) -> None:
    """Transactions run on while earlier ones are still to be applied, in batches of one or several."""
    choice = random.Random(seed)
    pending: list[list[dict[str, object]]] = []
    for _ in range(25):
        pending.append(world.run(*(random_statement(choice) for _ in range(choice.randint(1, 3)))))
        while pending and choice.random() < 0.4:
            count = choice.randint(1, 3)
            world.apply([change for batch in pending[:count] for change in batch])
            del pending[:count]
    for batch in pending:
        world.apply(batch)


@pytest.mark.parametrize("seed", range(25))
def test_late_readings_miss_nothing(world: World, seed: int) -> None:
    follow_at_random(world, seed)
    assert world.store == world.expected()


def test_the_oracle_sees_a_missing_old_side(world: World) -> None:
    """Without old sides some document goes stale, and the comparison shows it."""
    world.old_sides = False
    world.apply(world.run(STATEMENTS["a child moves to another parent"]))
    assert world.store != world.expected()


ROUTES = {
    "person": "a self-reference moves",
    "badge": "a child goes",
    "tag": "a tag is renamed",
    "tagging": "a tag is unlinked",
    "Order": "an order changes hands",
    "line_rest": "a line appears",
}


@pytest.mark.parametrize("table", ROUTES)
def test_the_oracle_sees_a_missing_route(world: World, table: str) -> None:
    """Without one table's routes some document goes stale, and the comparison shows it."""
    plan = plan_resolution(world.specs, world.catalog)
    kept = {name: routes for name, routes in plan.routes.items() if name.name != table}
    assert len(kept) == len(plan.routes) - 1
    world.resolver = Resolver(world.session, replace(plan, routes=kept))
    world.apply(world.run(STATEMENTS[ROUTES[table]]))
    assert world.store != world.expected()


def test_a_change_without_the_column_that_leads_upwards_is_an_error(world: World) -> None:
    change = {"schema": "public", "table": "badge", "op": "d", "before": [("id", "1")], "after": None}
    with pytest.raises(HeadraceError) as caught:
        world.apply([change])
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert "badge" in str(caught.value)
    assert "person_id" in str(caught.value)
