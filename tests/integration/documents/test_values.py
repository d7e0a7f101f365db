"""What each PostgreSQL type and each kind of field becomes, and which rows each filter keeps."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.assembly.assembler import Assembler
from headrace.catalog import read_catalog
from headrace.errors import Place
from headrace.model.names import CtidRange, TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import ColumnField, ConstantField, IndexSpec

PLACE = Place(Path("test.schema.yml"), 1, 1)

TABLES = (
    "CREATE EXTENSION citext",
    "CREATE EXTENSION hstore",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN short_text AS varchar(5)",
    "CREATE DOMAIN many_numbers AS numeric[]",
    "CREATE TYPE pair AS (a int, b text)",
    """CREATE TABLE named (name citext PRIMARY KEY, n int, code varchar(3), ok bool, price numeric(6,2),
                           m mood)""",
    "CREATE TABLE owned (id int PRIMARY KEY, owner citext, size numeric, at timestamptz, tag uuid, f float8)",
)

VALUES = [
    ("int2", "-32768", "-32768"),
    ("int8", "9223372036854775807", "9223372036854775807"),
    ("bool", "true", "true"),
    ("float8", "0.1", "0.1"),
    ("float8", "12345678901234567", "1.2345678901234568e+16"),
    ("float8", "1e300", "1e+300"),
    ("float8", "NaN", "null"),
    ("float8", "-Infinity", "null"),
    ("float4", "3.4028235e38", "3.4028235e+38"),
    ("numeric", "123456789012345678901234567890.1234567890", "123456789012345678901234567890.1234567890"),
    ("numeric(10,2)", "1.5", "1.50"),
    ("numeric", "NaN", "null"),
    ("numeric", "Infinity", "null"),
    ("money", "12.34", "12.34"),
    ("text", 'a"b\\c\n\td\u2028é😀', '"a\\"b\\\\c\\n\\td\u2028é😀"'),
    ("varchar(9)", "x'y", '"x\'y"'),
    ("char(4)", "DE", '"DE  "'),
    ("citext", "Mixed", '"Mixed"'),
    ("name", "n", '"n"'),
    ("short_text", "abc", '"abc"'),
    ("mood", "sad", '"sad"'),
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("date", "2024-02-29", '"2024-02-29"'),
    ("date", "infinity", "null"),
    ("timestamp", "2024-02-29 12:34:56.789012", '"2024-02-29T12:34:56.789012"'),
    ("timestamptz", "2024-02-29 12:34:56+05:30", '"2024-02-29T07:04:56+00:00"'),
    ("timestamptz", "-infinity", "null"),
    ("time", "12:34:56", '"12:34:56"'),
    ("interval", "1 day 2 hours", '"P1DT2H"'),
    ("bytea", "\\x00ff10" + "ab" * 80, None),
    (
        "json",
        '{"b": 1.10,\n "a": [null, 12345678901234567890]}',
        '{"b": 1.10,  "a": [null, 12345678901234567890]}',
    ),
    ("jsonb", '{"b": 1.10, "a": null}', '{"a": null, "b": 1.10}'),
    ("hstore", 'a=>"x", b=>NULL', '{"a": "x", "b": null}'),
    ("int4[]", "{1,NULL,3}", "[1,null,3]"),
    ("int4[]", "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
    ("text[]", '{a,"b\\"c",NULL}', '["a","b\\"c",null]'),
    ("numeric[]", "{1.50,NaN,NULL}", "[1.50,null,null]"),
    ("many_numbers", "{2.0}", "[2.0]"),
    ("numeric[]", "{{1.50,NaN},{NULL,2}}", "[[1.50,null],[null,2]]"),
    (
        "date[]",
        "{{{2024-01-01},{NULL}},{{infinity},{2024-01-02}}}",
        '[[["2024-01-01"],[null]],[[null],["2024-01-02"]]]',
    ),
    ("oid[]", "{4294967295}", "[4294967295]"),
    ("float8[]", "{}", "[]"),
    ("timestamptz[]", '{"2024-01-01 00:00:00+01",infinity}', '["2023-12-31T23:00:00+00:00",null]'),
    ("bytea[]", '{"\\\\x00ff"}', '["AP8="]'),
    ("mood[]", "{ok,sad}", '["ok","sad"]'),
    ("inet", "10.0.0.1/8", '"10.0.0.1/8"'),
    ("inet", "10.0.0.1", '"10.0.0.1"'),
    ("int4range", "[1,5)", '"[1,5)"'),
    ("pair", "(1,x)", '{"a":1,"b":"x"}'),
]


class Database:
    def __init__(self, url: str, folder: Path) -> None:
        self.writer = psycopg.connect(url, autocommit=True)
        self.session = ReadSession(url)
        self.folder = folder

    def spec(self, text: str) -> IndexSpec:
        path = self.folder / "test.schema.yml"
        path.write_text("version: 1\n" + text)
        return load_schema(path, "test")

    def assembler(self, spec: IndexSpec) -> Assembler:
        return Assembler(self.session, spec, read_catalog(self.session, spec.tables()))

    def documents(self, spec: IndexSpec) -> dict[str, Any]:
        operations = self.assembler(spec).assemble_range(CtidRange(0, None), 1)
        return {one.id: json.loads(one.body or b"", parse_float=Decimal) for one in operations}


@pytest.fixture(scope="module")
def database(
    make_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    database = Database(make_database(TABLES), tmp_path_factory.mktemp("schemas"))
    yield database
    database.session.close()
    database.writer.close()


def test_each_type_becomes_its_json(database: Database) -> None:
    """All types in one row, then all of them null; 150 columns need more than one call's arguments."""
    columns = [(f"c{number}", *value) for number, value in enumerate(VALUES * 3)]
    declared = ", ".join(f"{name} {kind}" for name, kind, _, _ in columns)
    database.writer.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {declared})")
    given_values = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    with psycopg.RawCursor(database.writer) as cursor:
        cursor.execute(f"INSERT INTO typed VALUES (1, {given_values})", [value for _, _, value, _ in columns])
    database.writer.execute("INSERT INTO typed (id) VALUES (2)")
    fields = tuple(
        ColumnField(name, "custom", name, required=False, opensearch="keyword", place=PLACE)
        for name, *_ in columns
    )
    full, empty = database.assembler(_spec("typed", fields)).assemble([("1",), ("2",)], 5)
    assert full.body is not None
    assert empty.body is not None
    assert b"\n" not in full.body
    text = full.body.decode()
    for name, kind, _, expected in columns:
        if expected is not None:
            assert f'"{name}":{expected}' in text, kind
    document = json.loads(full.body)
    bytes_column = next(name for name, kind, _, _ in columns if kind == "bytea")
    assert document[bytes_column] == "AP8Q" + "q6ur" * 26 + "q6s="
    assert json.loads(empty.body) == {name: None for name, *_ in columns}


def _spec(table: str, fields: tuple[ColumnField | ConstantField, ...]) -> IndexSpec:
    return IndexSpec("test", TableName("public", table), ("id",), fields, PLACE)


def test_fields_that_are_no_plain_column(database: Database) -> None:
    database.writer.execute(
        """CREATE TABLE "Odd" ("select" int PRIMARY KEY, "Na""me" text, lat float8, lon numeric, spot point,
           labels jsonb, n int)"""
    )
    database.writer.execute(
        """INSERT INTO "Odd" VALUES (1, E'  ÀB \n', 1.5, 2.50, '(3,4.5)', '{"a": 1}', 7),
           (2, NULL, 'NaN', 1, NULL, NULL, NULL), (3, '', 1, NULL, '(NaN,1)', '{}', 0)"""
    )
    spec = database.spec("""
table: '"Odd"'
primary_key: select
fields:
  - keyword: name
    column: '"Na""me"'
    transforms: [trim, lowercase]
  - geo: place
    lat: lat
    lon: lon
  - geo: spot
    column: spot
  - map: labels
    values: integer
  - integer: n
    default: 5
  - object: its
    fields:
      - integer: select
      - constant: seven
        value: 7
      - constant: no
        value: "a\\\\b'\\"c"
""")
    rest = {"seven": 7, "no": "a\\b'\"c"}
    lower = database.writer.execute("SELECT lower('ÀB')").fetchone()  # as the database's locale has it
    assert lower is not None
    assert database.documents(spec) == {
        "1": {
            "name": lower[0],
            "place": {"lat": Decimal("1.5"), "lon": Decimal("2.50")},
            "spot": {"lat": Decimal("4.5"), "lon": 3},
            "labels": {"a": 1},
            "n": 7,
            "its": {"select": 1, **rest},
        },
        "2": {
            "name": None,
            "place": None,
            "spot": None,
            "labels": None,
            "n": 5,
            "its": {"select": 2, **rest},
        },
        "3": {"name": "", "place": None, "spot": None, "labels": {}, "n": 0, "its": {"select": 3, **rest}},
    }


NAMED = """INSERT INTO named VALUES ('Ann', 1, 'abc', true, 1.00, 'sad'), ('bob', 2, 'ab', false, 2.5, 'ok'),
                                    ('Cy', NULL, NULL, NULL, NULL, NULL)"""
FILTERS = [
    ("{ column: n, op: eq, value: 1 }", "Ann"),
    ("{ column: n, op: neq, value: 1 }", "bob"),
    ("{ column: n, op: lt, value: 2 }", "Ann"),
    ("{ column: n, op: lte, value: 2 }", "Ann bob"),
    ("{ column: n, op: gt, value: 1 }", "bob"),
    ("{ column: n, op: gte, value: 1 }", "Ann bob"),
    ("{ column: n, op: is_null }", "Cy"),
    ("{ column: n, op: is_not_null }", "Ann bob"),
    ("{ column: n, op: in, value: [1, 3] }", "Ann"),
    ("{ column: n, op: not_in, value: [1, 3] }", "bob"),
    ("{ column: n, op: between, value: [2, 9] }", "bob"),
    ("{ column: ok, op: eq, value: true }", "Ann"),
    ("{ column: code, op: eq, value: abcdef }", ""),
    ("{ column: code, op: like, value: 'ab%' }", "Ann bob"),
    ("{ column: code, op: ilike, value: 'AB' }", "bob"),
    ("{ column: price, op: eq, value: 1.001 }", ""),
    ("{ column: price, op: gte, value: 2.5 }", "bob"),
    ("{ column: m, op: gt, value: sad }", "bob"),
    ("{ column: name, op: eq, value: ANN }", "Ann"),
    ("{ column: name, op: in, value: [ANN, BOB] }", "Ann bob"),
    ("{ column: name, op: like, value: 'b%' }", "bob"),
    ("{ raw: \"code ~ '^ab;--$' OR named.n = 2\" }", "bob"),
    ('{ raw: "n > 0 OR true" }, { column: ok, op: eq, value: false }', "bob"),
]


@pytest.mark.parametrize(("filters", "kept"), FILTERS)
def test_a_filter_keeps_its_rows(database: Database, filters: str, kept: str) -> None:
    database.writer.execute("TRUNCATE named")
    database.writer.execute(NAMED)
    spec = database.spec(
        f"table: named\nprimary_key: name\nfilters: [{filters}]\nfields: [{{ keyword: name }}]\n"
    )
    assert set(database.documents(spec)) == set(kept.split())
    found = database.assembler(spec).assemble([("Ann",), ("bob",), ("Cy",), ("gone",)], 3)
    assert {one.id: one.body is None for one in found} == {
        **{name: name not in kept.split() for name in ("Ann", "bob", "Cy")},
        "gone": True,
    }


SOFT_DELETES = [
    ("{ column: ok }", "bob Cy"),
    ("{ column: code }", "Cy"),
    ("{ column: ok, when: [{ column: n, op: gt, value: 1 }] }", "Ann bob Cy"),
    ("{ column: code, when: [{ raw: 'n > 1' }, { column: ok, op: eq, value: false }] }", "Ann Cy"),
]


@pytest.mark.parametrize(("soft_delete", "kept"), SOFT_DELETES)
def test_a_soft_delete_takes_its_rows_away(database: Database, soft_delete: str, kept: str) -> None:
    database.writer.execute("TRUNCATE named")
    database.writer.execute(NAMED)
    spec = database.spec(
        f"table: named\nprimary_key: name\nsoft_delete: {soft_delete}\nfields: [{{ keyword: name }}]\n"
    )
    assert set(database.documents(spec)) == set(kept.split())
    found = database.assembler(spec).assemble([("ann",), ("bob",), ("Cy",)], 3)
    assert {one.id for one in found if one.body is not None} == set(kept.split())


def test_a_key_that_is_written_differently_now_loses_its_old_id(database: Database) -> None:
    database.writer.execute("TRUNCATE named")
    database.writer.execute(NAMED)
    database.writer.execute("TRUNCATE owned")
    database.writer.execute("INSERT INTO owned VALUES (1, 'ANN'), (2, 'ann')")
    spec = database.spec("""
table: named
primary_key: name
fields:
  - count: owned
    table: owned
    foreign_key: owner
  - has_many: things
    table: owned
    foreign_key: owner
    primary_key: id
    fields: [{ integer: id }]
""")
    found = list(database.assembler(spec).assemble([("ANN",), ("Ann",), ("aNn",), ("ANN",)], 3))
    assert {one.id: one.body for one in found} == {
        "Ann": b'{"owned":2,"things":[{"id":1},{"id":2}]}',
        "ANN": None,
        "aNn": None,
    }
    assert len(found) == 3


def test_aggregates_of_every_type(database: Database) -> None:
    database.writer.execute("TRUNCATE named, owned")
    database.writer.execute(NAMED)
    database.writer.execute(
        """INSERT INTO owned VALUES
           (1, 'ann', 1.5, '2024-01-01 00:00:00+00', '00000000-0000-0000-0000-000000000002', 0.1),
           (2, 'Ann', 1.50, '2024-01-02 00:00:00+00', '00000000-0000-0000-0000-000000000001', 0.2),
           (3, 'ANN', NULL, NULL, NULL, 0.3), (4, 'bob', 'NaN', 'infinity', NULL, 'Infinity')"""
    )
    fields = "".join(
        f"  - {op}: {op}_{column}\n    table: owned\n    foreign_key: owner\n    column: {column}\n"
        + (f"    value_type: {kind}\n" if op != "avg" else "")
        for op, column, kind in (
            ("sum", "size", "decimal"),
            ("avg", "size", "double"),
            ("min", "size", "decimal"),
            ("max", "at", "timestamp"),
            ("min", "tag", "uuid"),
            ("max", "tag", "uuid"),
            ("sum", "f", "double"),
            ("avg", "f", "double"),
        )
    )
    ids = "  - ids: ids\n    table: owned\n    foreign_key: owner\n    element_type: integer\n"
    documents = database.documents(database.spec(f"table: named\nprimary_key: name\nfields:\n{fields}{ids}"))
    nothing = dict.fromkeys(documents["Ann"])
    assert documents["Ann"] == {
        "sum_size": Decimal("3.00"),
        "avg_size": Decimal("1.5"),
        "min_size": Decimal("1.5"),
        "max_at": "2024-01-02T00:00:00+00:00",
        "min_tag": "00000000-0000-0000-0000-000000000001",
        "max_tag": "00000000-0000-0000-0000-000000000002",
        "sum_f": Decimal(str(0.1 + 0.2 + 0.3)),
        "avg_f": Decimal(str((0.1 + 0.2 + 0.3) / 3)),
        "ids": [1, 2, 3],
    }
    assert documents["bob"] == {**nothing, "ids": [4]}
    assert documents["Cy"] == {**nothing, "ids": []}


HUGE = """
CREATE TABLE sensor (id int PRIMARY KEY);
CREATE TABLE reading (id int PRIMARY KEY, sensor_id int, d float8, r float4, n numeric, j jsonb);
INSERT INTO sensor SELECT generate_series(1, 9);
INSERT INTO reading VALUES
    (1, 1, 1.7976931348623157e308, 3e38, 1e400, '{"a": 1.00}'), (2, 1, 0, 0, 1, '{"a": 1.0}'),
    (3, 2, 1e308, 3e38, 1e308, '{"a": 2.00}'), (4, 2, 1e308, 3e38, 1e308, '{"a": 2.0}'),
    (5, 3, 1e308, 3e38, -1e308, NULL), (6, 3, 1e308, 3e38, 1e308, NULL), (7, 3, -1e308, -3e38, 0, NULL),
    (8, 4, 1e200, 1e30, 'NaN', NULL), (9, 4, -1e200, 'NaN', 1, NULL), (10, 4, 3, 1, 1, NULL),
    (11, 6, 5e-324, 1e-45, 0, NULL), (12, 6, 0, 0, 0, NULL),
    (13, 7, 1e300, 1, 1, NULL), (14, 7, 1e-310, 1, 1, NULL),
    (15, 8, 1.5e-323, 1, 1, NULL), (16, 8, 0, 1, 1, NULL),
    (17, 9, 1e300, 1, 1, NULL), (18, 9, -1e300, 1, 1, NULL), (19, 9, 5e-324, 1, 1, NULL);
"""


def test_no_number_is_too_large_or_too_small_for_a_sum(database: Database) -> None:
    """PostgreSQL refuses sums and quotients that no double holds: one value would end the stream for good."""
    database.writer.execute(HUGE.encode())
    fields = "".join(
        f"  - {op}: {op}_{column}\n    table: reading\n    primary_key: id\n    foreign_key: sensor_id\n"
        f"    column: {column}\n" + ("" if op == "avg" else "    value_type: double\n")
        for op in ("sum", "avg")
        for column in "drn"
        if (op, column) != ("sum", "n")
    )
    spec = database.spec(f"table: sensor\nprimary_key: id\nfields:\n{fields}")
    sets = {one.id: one.body for one in database.assembler(spec).assemble_range(CtidRange(0, None), 1)}
    assembler = database.assembler(spec)
    looked_up = {key: next(assembler.assemble([(key,)], 1)).body for key in sets}
    assert looked_up == sets
    assert {int(key): tuple(json.loads(body or b"").values()) for key, body in sets.items()} == {
        1: (1.7976931348623157e308, 3e38, 8.988465674311579e307, 1.5000000027488779e38, None),
        2: (None, None, 1e308, 3.0000000054977558e38, 1e308),
        3: (1e308, 3e38, 1e308 / 3, 1.0000000018325853e38, 0.0),
        4: (3.0, None, 1.0, None, None),
        5: (None, None, None, None, None),
        6: (5e-324, 1e-45, 0.0, 7.006492321624085e-46, 0.0),
        7: (1e300, 2.0, 5e299, 1.0, 1.0),
        8: (1.5e-323, 2.0, 1e-323, 1.0, 1.0),
        9: (0.0, 3.0, 0.0, 1.0, 1.0),
    }


def test_a_chunk_is_small_where_documents_are_large(database: Database) -> None:
    database.writer.execute("CREATE TABLE large (id int PRIMARY KEY, body text)")
    database.writer.execute("INSERT INTO large SELECT i, repeat('x', 100000) FROM generate_series(1, 1200) i")
    assembler = database.assembler(database.spec("table: large\nprimary_key: id\nfields: [{ text: body }]\n"))
    keys = [(str(number),) for number in range(1, 1201)]
    live = [one.id for one in assembler.assemble(keys, 1) if one.body is not None]
    assert sorted(live, key=int) == [id_ for (id_,) in keys]
    assert 100 < assembler._chunk < 300


def test_ranges_of_blocks_cover_the_table_once(database: Database) -> None:
    database.writer.execute("CREATE TABLE blocks (id int PRIMARY KEY, pad text)")
    database.writer.execute("INSERT INTO blocks SELECT i, repeat('x', 500) FROM generate_series(1, 300) i")
    assembler = database.assembler(
        database.spec("table: blocks\nprimary_key: id\nfields: [{ integer: id }]\n")
    )
    ranges = [CtidRange(0, 4), CtidRange(5, 5), CtidRange(6, None)]
    found = [one.id for part in ranges for one in assembler.assemble_range(part, 1)]
    assert sorted(found, key=int) == [str(number) for number in range(1, 301)]


def test_a_partitioned_root_is_read_by_key_and_leaf_by_leaf(database: Database) -> None:
    database.writer.execute(
        "CREATE TABLE parted (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)"
    )
    database.writer.execute(
        "CREATE TABLE parted_old PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2024-01-01')"
    )
    database.writer.execute("CREATE TABLE parted_new PARTITION OF parted DEFAULT")
    database.writer.execute(
        "INSERT INTO parted VALUES (1, '2023-05-05'), (2, '2025-05-05'), (3, '2026-05-05')"
    )
    spec = database.spec("table: parted\nprimary_key: [id, at]\nfields: [{ integer: id }]\n")
    assembler = database.assembler(spec)
    found = assembler.assemble([("1", "2023-05-05"), ("2", "2025-05-05"), ("2", "2023-05-05")], 1)
    assert {one.id: one.body for one in found} == {
        "1:2023-05-05": b'{"id":1}',
        "2:2025-05-05": b'{"id":2}',
        "2:2023-05-05": None,
    }
    leaf = CtidRange(0, None, TableName("public", "parted_new"))
    assert {one.id for one in assembler.assemble_range(leaf, 1)} == {"2:2025-05-05", "3:2026-05-05"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
            st.sampled_from(["%", ":", "%3A", "a:b%", "'", '"', "\\", "é:"]),
        ),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
def test_ids_tell_all_keys_apart(database: Database, parts: list[tuple[str, str]]) -> None:
    database.writer.execute('CREATE TABLE IF NOT EXISTS "K" (a text, "B" text, PRIMARY KEY ("B", a))')
    database.writer.execute('TRUNCATE "K"')
    with database.writer.cursor() as cursor:
        cursor.executemany('INSERT INTO "K" VALUES (%s, %s)', parts)
    spec = database.spec("""table: '"K"'\nprimary_key: ['"B"', a]\nfields: [{ keyword: a }]\n""")
    keys = [(second, first) for first, second in parts]
    there = {one.id: one.body for one in database.assembler(spec).assemble(keys, 1)}
    expected = {
        ":".join(part.replace("%", "%25").replace(":", "%3A") for part in key): {"a": key[1]} for key in keys
    }
    assert {id_: json.loads(body or b"null") for id_, body in there.items()} == expected
    database.writer.execute('TRUNCATE "K"')
    gone = list(database.assembler(spec).assemble(keys, 1))
    assert {one.id for one in gone} == set(expected)
    assert all(one.body is None for one in gone)


def test_an_unquoted_number_of_a_filter_is_what_stands_in_the_file(database: Database) -> None:
    """A column of texts holds the spelling, one of numbers the number."""
    operands = ["1.10", "1e5", "+5", "0x1F", "-0", "12345678901234567890.50"]
    database.writer.execute("CREATE TABLE spelt (id int PRIMARY KEY, t text, n numeric, i int, b bool)")
    texts = [*operands, "1.1", "100000.0", "5", "31", "0", "true", "True"]
    for number, text in enumerate(texts):
        read = int(text, 0) if text.startswith("0x") else text if text.lower() != "true" else None
        row = (number, text, read, number, text == "True" or None)
        database.writer.execute("INSERT INTO spelt VALUES (%s, %s, %s, %s, %s)", row)

    def met(column: str, values: list[str]) -> set[str]:
        spec = database.spec(
            f"""table: spelt
primary_key: id
filters: [{{column: {column}, op: in, value: [{", ".join(values)}]}}]
fields: [{{text: t}}]
"""
        )
        return {found["t"] for found in database.documents(spec).values()}

    assert met("t", [*operands, "True"]) == {*operands, "True"}
    assert met("n", operands) == {*operands, "1.1", "100000.0", "5", "31", "0"}
    assert met("i", ["+5", "0x3", "-0", "0o4"]) == {texts[number] for number in (5, 3, 0, 4)}
    assert met("b", ["True"]) == {"True"}
