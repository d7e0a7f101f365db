"""Do our changes agree, row by row and value by value, with a decoder that is not ours?

The same log is read by `test_decoding` and by a `ChangeStream`. The wheel of PostgreSQL 16 has no
`test_decoding`, so this runs on 18 and 15.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from headrace.capture import Offset
from headrace.capture.buffer import Limit
from headrace.model.changes import CHANGES_SCHEMA, Op
from integration.capture.following import EVERYTHING, Source, next_batch, table
from integration.facts.witness import KEPT, Values, Witness, Witnessed

pytestmark = pytest.mark.parametrize("version", [18, 15], indirect=True)

KINDS = {Op.INSERT: "INSERT", Op.UPDATE: "UPDATE", Op.DELETE: "DELETE", Op.TRUNCATE: "TRUNCATE"}

TABLES = (
    'CREATE SCHEMA "My Shop"',
    "CREATE TABLE plain (id int PRIMARY KEY, n int, note text)",
    'CREATE TABLE "My Shop"."Line: ""Items""" ("B" int, "n [x]:" text, a text, PRIMARY KEY (a, "B"))',
    "CREATE TABLE whole (id int, long text, note text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE coded (id int PRIMARY KEY, code text NOT NULL UNIQUE, long text)",
    "ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code_key",
    "CREATE TABLE log (at int)",
    "ALTER TABLE whole ALTER long SET STORAGE EXTERNAL",
    "ALTER TABLE coded ALTER long SET STORAGE EXTERNAL",
)
ITEMS = '"My Shop"."Line: ""Items"""'
TEXTS = ("", "it's", "a\\b", 'say "x"', "two\nlines", "Zoë 😀", "id[integer]:1 ", "null", " new-tuple: ", "'")


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def agree(source: Source, start: Offset, witness: Witness, limit: Limit = EVERYTHING) -> list[Witnessed]:
    """Read all that the witness saw through a stream, compare, and return what it said."""
    expected = witness.testimony()
    stream = source.stream(start, chunk_bytes=64 << 10)
    found: list[Witnessed] = []
    while len(found) < len(expected):
        stream.confirm(start)
        end = next_batch(stream, start, limit)
        read = table(stream, start, end)
        assert read.schema == CHANGES_SCHEMA
        found += map(ours, read.to_pylist())
        start = end
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.xid, one.table, one.kind) == (other.xid, other.table, other.kind)
        assert one.old == other.old, other
        assert one.new == known(other), other
    return expected


def ours(row: dict[str, object]) -> Witnessed:
    before, after = row["before"], row["after"]
    assert before is None or isinstance(before, list)
    assert after is None or isinstance(after, list)
    return Witnessed(
        int(str(row["_xid"])),
        (str(row["schema"]), str(row["table"])),
        KINDS[Op(str(row["op"]))],
        None if before is None else {name: value for name, value in before if value is not None},
        None if after is None else dict(after),
    )


def known(witnessed: Witnessed) -> Values | None:
    """The new row as we must tell it: an unchanged value comes from the old row, else it is absent."""
    if witnessed.new is None:
        return None
    old = witnessed.old or {}
    return {
        name: old.get(name) if value is KEPT else value
        for name, value in witnessed.new.items()
        if value is not KEPT or name in old
    }


def statements(chance: random.Random) -> Iterator[str]:
    """Random writers' statements; every one is valid whatever was written before."""
    numbers = iter(range(1, 1_000_000))

    def some() -> str:
        return text(chance.choice(TEXTS)) if chance.random() < 0.8 else "NULL"

    choices: list[Callable[[], str]] = [
        lambda: f"INSERT INTO plain VALUES ({next(numbers)}, {chance.randrange(9)}, {some()})",
        lambda: f"UPDATE plain SET note = {some()} WHERE n = {chance.randrange(9)}",
        lambda: f"UPDATE plain SET id = id + 500000 WHERE n = {chance.randrange(9)} AND id < 500000",
        lambda: f"DELETE FROM plain WHERE n = {chance.randrange(9)} AND id % 3 = 0",
        lambda: f"INSERT INTO {ITEMS} VALUES ({next(numbers)}, {some()}, {text(chance.choice(TEXTS))})",
        lambda: f'UPDATE {ITEMS} SET "n [x]:" = {some()} WHERE "B" % 4 = 1',
        lambda: f"""UPDATE {ITEMS} SET a = a || 'ä' WHERE "B" % 5 = {chance.randrange(5)}""",
        lambda: f'DELETE FROM {ITEMS} WHERE "B" % 7 = {chance.randrange(7)}',
        lambda: f"INSERT INTO whole VALUES ({next(numbers) % 20}, repeat('y', 5000), {some()})",
        lambda: f"UPDATE whole SET note = {some()} WHERE id = {chance.randrange(20)}",
        lambda: f"UPDATE whole SET long = {some()} WHERE id = {chance.randrange(20)}",
        lambda: f"DELETE FROM whole WHERE id = {chance.randrange(20)}",
        lambda: (
            f"INSERT INTO coded SELECT n, 'c''' || n, repeat('z', 5000) FROM (SELECT {next(numbers)} n) x"
        ),
        lambda: f"UPDATE coded SET id = id + 500000 WHERE id % 5 = {chance.randrange(5)} AND id < 500000",
        lambda: f"UPDATE coded SET code = code || 'x' WHERE id % 5 = {chance.randrange(5)}",
        lambda: f"DELETE FROM coded WHERE id % 9 = {chance.randrange(9)}",
        lambda: f"INSERT INTO log VALUES ({next(numbers)})",
        lambda: (
            chance.choice(["TRUNCATE log", f"TRUNCATE whole, {ITEMS}", "TRUNCATE plain RESTART IDENTITY"])
            if chance.random() < 0.2
            else "SELECT 1"
        ),
    ]
    while True:
        yield chance.choice(choices)()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_mixed_workload_is_told_alike(source: Source, seed: int) -> None:
    chance = random.Random(seed)
    source.sql(*TABLES)
    start = source.publish()
    with Witness(source) as witness:
        written = statements(chance)
        for _ in range(60):
            block = [next(written) for _ in range(chance.randrange(1, 8))]
            if chance.random() < 0.3:
                undone = [next(written), next(written)]
                block += ["SAVEPOINT s", *undone, "ROLLBACK TO s" if chance.random() < 0.7 else "RELEASE s"]
                block.append(next(written))
            if chance.random() < 0.1:
                block.append("ROLLBACK")
            source.transaction(*block)
        expected = agree(source, start, witness)
    assert {change.kind for change in expected} == set(KINDS.values())
    assert any(change.new and KEPT in change.new.values() for change in expected)


def test_a_big_transaction_is_told_alike_and_in_pieces(source: Source) -> None:
    """Larger than what the server keeps in memory for it, with a part that is undone."""
    source.sql(*TABLES)
    start = source.publish()
    with Witness(source) as witness:
        source.transaction(
            "INSERT INTO plain SELECT g, g, 'row ' || g FROM generate_series(1, 4000) g",
            "SAVEPOINT s",
            "UPDATE plain SET n = 0",
            "ROLLBACK TO s",
            "UPDATE plain SET id = id + 10000 WHERE id % 3 = 0",
            "DELETE FROM plain WHERE id < 1000",
        )
        expected = agree(source, start, witness, Limit(64 << 10))
    assert len(expected) > 5000


TYPES = {
    "bool": ("true", "false"),
    "int2": ("-32768",),
    "int4": ("2147483647",),
    "int8": ("-9223372036854775808",),
    "numeric": ("'NaN'", "0.10", "12345678901234567890.123456789", "-0.00", "'Infinity'"),
    "numeric(10,2)": ("3.14159",),
    "float4": ("0.1", "'-Infinity'", "1e-30"),
    "float8": ("0.1", "'NaN'", "1e300", "-0.0"),
    "money": ("'12.34'",),
    "oid": ("4294967295",),
    "text": ("''", "'it''s'", "E'tab\\tnew\\nline'", "repeat('ß', 3000)"),
    "varchar(5)": ("'a b'",),
    "char(5)": ("'ab'",),
    '"char"': ("'x'",),
    "name": ("'n'",),
    "bytea": (r"'\x00ff27'", "''"),
    "date": ("'2026-01-02'", "'infinity'", "'0044-03-15 BC'"),
    "time": ("'23:59:59.999999'",),
    "timetz": ("'12:00+05:30'",),
    "timestamp": ("'2026-01-02 03:04:05.000006'", "'-infinity'"),
    "timestamptz": ("'2026-01-02 03:04:05+09'", "'0001-01-01 00:00:00+00 BC'"),
    "interval": ("'1 year -2 days 03:04:05.5'", "'0'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "json": ("""'{"b": 1,  "a": [null, "it''s"]}'""",),
    "jsonb": ("""'{"b": 1,  "a": [null, 1.50]}'""",),
    "inet": ("'10.0.0.1/8'", "'::1'"),
    "cidr": ("'10.0.0.0/8'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "bit(3)": ("B'101'",),
    "varbit": ("B'10'", "B''"),
    "int4[]": ("'{1,NULL,3}'", "'{}'", "'[2:3]={1,2}'"),
    "text[]": ("""ARRAY['a,b', 'it''s', '"', NULL, 'null', '']""",),
    "int4range": ("'[1,5)'", "'empty'"),
    "tstzrange": ("'[2026-01-01 00:00+00,)'",),
    "int4multirange": ("'{[1,3),[5,7)}'",),
    "point": ("'(1.5,-2)'",),
    "tsvector": ("'fat:1A cat''s:2'::tsvector",),
    "pg_lsn": ("'16/B374D848'",),
    "mood": ("'so so'",),
    "positive": ("7",),
    "pair": ("ROW(1, 'a,\"b')",),
}


def test_every_common_type_is_told_alike(source: Source) -> None:
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    source.sql(
        "CREATE TYPE mood AS ENUM ('ok', 'so so')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE t (id serial PRIMARY KEY, {columns})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t DEFAULT VALUES",
    )
    start = source.publish()
    with Witness(source) as witness:
        for number, values in enumerate(TYPES.values()):
            for value in values:
                source.sql(f"UPDATE t SET c{number} = {value}")
        source.sql("INSERT INTO t (id) VALUES (2)", "DELETE FROM t")
        expected = agree(source, start, witness)
    last = expected[-2]
    assert last.old is not None
    assert len(last.old) == len(TYPES) + 1, "each column came to a value"
