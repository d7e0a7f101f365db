"""Is a value the same, whichever way it comes: from a snapshot, the stream, a replay or the backlog?

One table has a column of every type and a row for each value at its edge. What the values are is compared
with what the server says of them, and their JSON with the documents'.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import psycopg.types.composite
import psycopg.types.hstore
import pyarrow as pa
import pytest
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range, RangeInfo

from headrace.assembly.json_text import json_text
from headrace.capture import Offset
from headrace.catalog import Table, read_catalog
from headrace.catalog.types import RowType, read_row_types
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import TableName
from headrace.model.types import TYPES, ArrowForm, Json
from headrace.model.value_type import ValueType
from headrace.model.values import convert, json_form, moments
from headrace.model.values.texts import array_tree, composite_texts, map_pairs
from headrace.postgres.connection import connect
from headrace.postgres.quoting import identifier, literal, output_text
from headrace.postgres.quoting import table as table_sql
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot, drop_slot
from integration.capture.following import Source, next_batch, table
from integration.facts.edge_values import EDGES, SETUP
from support.changes import Change, decode_changes
from support.servers import skip_without

NAME = TableName("public", "of every type")
SQL = table_sql(NAME)
COLUMNS = {kind: f'c "{number}"' for number, kind in enumerate(EDGES)}
ROWS = max(map(len, EDGES.values())) + 1
WAYS: dict[str, dict[str, Any]] = {
    "stream": {"backlog_bytes": None},
    "replay": {"backlog_bytes": None},
    "backlog": {"backlog_bytes": 1},
}
UNLIKE_OURS = (
    "TimeZone = 'Asia/Kolkata'",
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = 'postgres_verbose'",
    "bytea_output = 'escape'",
    "extra_float_digits = -3",
)
"""The database's own settings: every way has to bring its own."""
Texts = dict[str, list[str | None]]
"""The values of each type's column in the order of the rows; the last is NULL."""


@dataclass
class Told:
    """What each way told of the same rows."""

    url: str
    session: ReadSession
    table: Table
    row_type: RowType
    edges: dict[str, tuple[str, ...]]
    ways: dict[str, Texts]

    def kind(self, name: str) -> ValueType:
        return self.row_type.columns[COLUMNS[name]]

    def texts(self, name: str) -> pa.StringArray:
        return pa.array(self.ways["snapshot"][name], pa.string())

    def ask(self, name: str, sql: Callable[[str], str]) -> list[Any]:
        """What the server answers about each value of a type's column."""
        column = identifier(COLUMNS[name])
        return [value for (value,) in self.session.query(f"SELECT {sql(column)} FROM {SQL} ORDER BY id")]


@pytest.fixture(scope="module", params=[18, 15], ids="PostgreSQL {}".format)
def told(request: pytest.FixtureRequest, servers: Callable[[int], EmbeddedPostgres]) -> Iterator[Told]:
    skip_without(request.param)
    server = servers(request.param)
    source = Source(server.create_database("of_every_type"))
    edges = EDGES | ({"xml": ()} if request.param == 18 else {})  # the wheel is built without libxml
    rows = [insertion(row, edges) for row in range(ROWS)]
    source.sql(*(f"ALTER DATABASE of_every_type SET {one}" for one in UNLIKE_OURS))
    source.sql(*SETUP, creation(), f"ALTER TABLE {SQL} REPLICA IDENTITY FULL")
    start = source.publish()
    source.transaction(*rows)
    ways = {"snapshot": snapshot(source)}
    source.sql(f"DELETE FROM {SQL}")
    for way, settings in WAYS.items():
        ways[way], ways[f"{way}, old rows"] = followed(source, start, settings)
    source.transaction(*rows)
    with ReadSession(source.url) as session:
        yield Told(
            source.url,
            session,
            read_catalog(session, [NAME])[NAME],
            read_row_types(session, [NAME])[NAME],
            edges,
            ways,
        )
    source.close()
    server.drop_database("of_every_type")


def creation() -> str:
    columns = ", ".join(f"{identifier(name)} {kind}" for kind, name in COLUMNS.items())
    return f"CREATE TABLE {SQL} (id int PRIMARY KEY, {columns.replace(' dear', ' dear DEFAULT NULL')})"


def insertion(row: int, edges: dict[str, tuple[str, ...]]) -> str:
    """The row with the edge values of that number; NULL where a type has fewer."""
    given = {kind: values[row] for kind, values in edges.items() if row < len(values)}
    names = ", ".join(identifier(name) for name in ("id", *map(COLUMNS.__getitem__, given)))
    return f"INSERT INTO {SQL} ({names}) VALUES ({', '.join([str(row), *map(literal, given.values())])})"


def snapshot(source: Source) -> Texts:
    """What a snapshot sees that a slot has exported."""
    columns = ", ".join(output_text(identifier(name)) for name in COLUMNS.values())
    with (
        create_slot(source.url, f"{source.slot}_snapshot") as slot,
        ReadSession(source.url, snapshot=slot.snapshot_name) as session,
    ):
        rows = session.query(f"SELECT {columns} FROM {SQL} ORDER BY id")
    with connect(source.url) as connection:
        drop_slot(connection, slot.name)
    assert len(rows) == ROWS
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def followed(source: Source, start: Offset, settings: dict[str, Any]) -> tuple[Texts, Texts]:
    """What a stream tells: the rows when they were inserted, and when they were deleted."""
    with closing(source.stream(start, **settings)) as stream:
        changes: list[Change] = []
        end = start
        while len(changes) < 2 * ROWS:
            behind = next_batch(stream, end)
            changes += decode_changes(table(stream, end, behind))
            end = behind
    assert [change.op for change in changes] == ["c"] * ROWS + ["d"] * ROWS
    new = [change.after or {} for change in changes[:ROWS]]
    old = [change.before or {} for change in changes[ROWS:]]
    inserted, deleted = (
        {kind: [row.get(name) for row in rows] for kind, name in COLUMNS.items()} for rows in (new, old)
    )
    return inserted, deleted


def test_every_row_of_the_table_of_types_has_values_at_its_edge() -> None:
    names = {kind.partition("(")[0].strip('"') for kind in EDGES} | {"varbit", "bpchar"}
    names = {{"char": "bpchar", '"char"': "char"}.get(name, name) for name in names} | {"char"}
    elsewhere = {"vector"}  # which not every server has: documents/test_extension_types.py
    assert {row.names[0] for row in TYPES} - names == elsewhere


UNFIT = {
    "date": ["294247-01-01", "5874897-12-31"],
    "numeric(10,2)": ["NaN"],
    "price": ["NaN"],
    "timestamp": ["294276-12-31 23:59:59.999999"],
    "timestamptz": ["294247-01-01 00:00:00+00", "294276-12-31 23:59:59.999999+00"],
    "int4[]": ["{{1,2},{3,4}}", "[-1:0][2:3]={{1,2},{3,NULL}}"],
    "int4[][]": ["{1,2}", "{{{1}}}"],
    "numeric[]": ["{{1.0,NaN},{NULL,2}}"],
    "numeric(10,2)[]": ["{NaN}", "{{1.00,2.00},{3.00,4.00}}"],
    "bytea[]": ['{{"\\\\x01"},{"\\\\x02"}}'],
    "tsrange": ['["2024-01-01 00:00:00","294276-12-31 00:00:00"]'],
}
"""What a typed column cannot hold, as it is output_text."""


@pytest.mark.parametrize("kind", EDGES)
def test_a_value_is_the_same_whichever_way_it_comes(told: Told, kind: str) -> None:
    """As text, as typed value and as JSON; what does not fit is told. Holes 5 of drasi and 14 of flusso."""
    texts = told.ways["snapshot"][kind]
    assert [text is None for text in texts] == [row >= len(told.edges[kind]) for row in range(ROWS)]
    expected = convert(told.kind(kind), told.texts(kind), kind)
    assert expected.values.type == told.kind(kind).arrow
    expected.values.validate(full=True)
    assert told.texts(kind).take(pa.array(expected.unfit)).to_pylist() == UNFIT.get(kind, [])
    missing = {row for row, text in enumerate(texts) if text is None}
    assert set(expected.values.is_null().to_numpy(zero_copy_only=False).nonzero()[0]) == missing | set(
        expected.unfit
    )
    assert missing.isdisjoint(expected.unfit)
    expected_json = json_form(told.kind(kind), told.texts(kind), kind)
    for way, values in told.ways.items():
        assert values[kind] == texts, way
        found = convert(told.kind(kind), pa.array(values[kind], pa.string()), kind)
        assert found.values.equals(expected.values) or "NaN" in str(texts), way
        assert found.unfit.tolist() == expected.unfit.tolist(), way
        assert json_form(told.kind(kind), pa.array(values[kind], pa.string()), kind).equals(expected_json), (
            way
        )


def nulled(text: str | None) -> str | None:
    """What a document holds: null for what JSON has no number for."""
    nulled = re.sub(r'"-?[Ii]nfinity"|"NaN"', "null", text or "null")
    return None if nulled == "null" else nulled


@pytest.mark.parametrize("kind", EDGES)
def test_the_json_is_the_documents(told: Told, kind: str) -> None:
    """To the byte, except that documents have null for NaN and the infinities."""
    column = told.table.column(COLUMNS[kind])
    assert column is not None
    documents = told.ask(kind, lambda sql: json_text(column, sql))
    found = json_form(told.kind(kind), told.texts(kind), kind).to_pylist()
    for text in found:
        assert text is None or "\n" not in text
        assert text is None or json.loads(text, parse_float=Decimal) is not ...
    leaf = told.kind(kind)
    leaf = leaf.parts[0] if leaf.form is ArrowForm.ARRAY else leaf
    assert documents == (
        [nulled(text) for text in found] if leaf.json in (Json.NUMBER, Json.MOMENT) else found
    )


def typed(told: Told, kind: str) -> list[Any]:
    """The typed values; moments as numbers of days or microseconds."""
    values = convert(told.kind(kind), told.texts(kind), kind).values
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    found: list[Any] = values.to_pylist()
    return found


DAYS = "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text WHEN {0} IS NOT NULL THEN {0}::text END"
MICROSECONDS = (
    "CASE WHEN isfinite({0}) THEN (({0}::timestamp::date - date '1970-01-01') * 86400000000::numeric "
    "+ extract(epoch FROM {0}::timestamp::time) * 1000000)::numeric(38,0)::text "
    "WHEN {0} IS NOT NULL THEN {0}::text END"
)


@pytest.mark.parametrize(
    ("kind", "sql", "ends"),
    [
        ("date", DAYS, moments.DATE_ENDS),
        ("timestamp", MICROSECONDS, moments.TIMESTAMP_ENDS),
        ("timestamptz", MICROSECONDS, moments.TIMESTAMP_ENDS),
        ("timestamp(0)", MICROSECONDS, moments.TIMESTAMP_ENDS),
    ],
    ids=["date", "timestamp", "timestamptz", "timestamp(0)"],
)
def test_a_moment_is_the_number_that_the_server_says(
    told: Told, kind: str, sql: str, ends: moments.MomentBounds
) -> None:
    """BC and far years too; the infinities are values that no other one becomes."""
    infinite = {"infinity": ends.greatest, "-infinity": ends.least}
    said = [infinite.get(one) or int(one) for one in told.ask(kind, sql.format) if one is not None]
    unfit = convert(told.kind(kind), told.texts(kind), kind).unfit.tolist()
    assert all(said[row] >= ends.greatest for row in unfit)
    given = [None if row in unfit else one for row, one in enumerate(said)]
    assert typed(told, kind) == given + [None] * (ROWS - len(given))
    finite = [one for one in given if one not in (None, ends.greatest, ends.least)]
    assert ends.least < min(finite) <= max(finite) < ends.greatest


LOADED = (
    "bool|int2|int4|int8|oid|float4|float8|numeric(10,2)|numeric(38,10)|numeric(38,0)|numeric(3,-2)|"
    "numeric(2,5)|price|dear|text|varchar(5)|char(5)|name|citext|bytea|int4[]|int4[][]|grid|int8[][][]|text[]|"
    "bool[]|float8[]|numeric(10,2)[]|bytea[]|int4range|int8range|floats|words|int4multirange|nummultirange|"
    "int4range[]|pair|pair[]|hstore|hstore[]"
).split("|")


@pytest.fixture(scope="module")
def plain(told: Told) -> Iterator[psycopg.Connection]:
    """A connection that reads values by psycopg's own means."""
    with psycopg.connect(told.url, options="-c extra_float_digits=1 -c bytea_output=hex") as connection:
        psycopg.types.hstore.register_hstore(info(connection, "hstore", TypeInfo), connection)
        psycopg.types.composite.register_composite(info(connection, "pair", CompositeInfo), connection)
        for name in ("floats", "words"):
            psycopg.types.range.register_range(info(connection, name, RangeInfo), connection)
        yield connection


def info(connection: psycopg.Connection, name: str, kind: type[Any]) -> Any:
    found = kind.fetch(connection, name)
    assert found is not None
    return found


def as_arrow(kind: ValueType, value: Any) -> Any:
    """What PyArrow gives for a value that psycopg gives."""
    if isinstance(value, list | Multirange):
        inner = kind.parts[0] if not any(isinstance(item, list) for item in value) else kind
        return [as_arrow(inner, item) for item in value]
    if isinstance(value, Range):
        bounds = {side: as_arrow(kind.parts[0], getattr(value, side)) for side in ("lower", "upper")}
        flags = {"lower_inc": value.lower_inc, "upper_inc": value.upper_inc, "isempty": value.isempty}
        return bounds | flags
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, tuple):
        return dict(zip(kind.names, value, strict=True))
    if isinstance(value, Decimal) and pa.types.is_string(kind.arrow):
        return str(value)
    return float(np.float32(value)) if value is not None and pa.types.is_float32(kind.arrow) else value


@pytest.mark.parametrize("kind", LOADED)
def test_a_typed_value_is_what_another_reader_of_the_database_gets(
    told: Told, plain: psycopg.Connection, kind: str
) -> None:
    """Hole 5 of drasi: inner lists, quoted elements, NULLs in lists, arrays of numbers."""
    rows = plain.execute(f"SELECT {identifier(COLUMNS[kind])} FROM {SQL} ORDER BY id").fetchall()
    found = convert(told.kind(kind), told.texts(kind), kind)
    given = [as_arrow(told.kind(kind), value) for (value,) in rows]
    for row in found.unfit.tolist():
        given[row] = None
    assert repr(found.values.to_pylist()) == repr(given)


def test_random_texts_come_through_arrays_composite_types_and_hstore(plain: psycopg.Connection) -> None:
    chance = random.Random(4)
    letters = [
        "",
        "a",
        " ",
        ",",
        '"',
        "\\",
        "{",
        "}",
        "(",
        ")",
        "NULL",
        "\n",
        "=>",
        "ü",
        "'",
        ";",
        "[",
        "null",
    ]

    def text() -> str | None:
        return None if chance.random() < 0.1 else "".join(chance.choices(letters, k=chance.randrange(5)))

    for _ in range(100):
        lists, key = [[[text() for _ in range(2)] for _ in range(3)] for _ in range(2)], text() or ""
        flat, pair, pairs = lists[0][0], (chance.randrange(9), text()), {key: text(), "b": text()}
        given = plain.execute(
            "SELECT format('%%s', %s::text[]), format('%%s', %s::text[]), "
            "format('%%s', row(%s::int, %s::text)), format('%%s', %s::hstore)",
            (lists, flat, *pair, pairs),
        ).fetchone()
        assert given is not None
        assert [array_tree(given[0]), array_tree(given[1])] == [lists, flat]
        assert composite_texts(given[2], 2) == [str(pair[0]), pair[1]]
        assert dict(map_pairs(given[3])) == pairs
