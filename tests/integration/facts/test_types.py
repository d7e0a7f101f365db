"""Is a value the same, whichever way it comes: from a snapshot, the stream, a replay or the backlog?

One table has a column of every type and a row for each value at its edge. What the values are is compared
with what the server says of them, and their JSON with the documents'.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.assembly.json_text import json_text
from headrace.capture import Offset
from headrace.catalog import read_catalog
from headrace.catalog.types import RowType, read_row_types
from headrace.model import TableName, decode_changes
from headrace.model.types import TYPES, Form, Json, ValueType
from headrace.model.values import convert, json_form
from headrace.postgres.connection import connect, execute
from headrace.postgres.printing import printed
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as table_sql
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot, drop_slot
from headrace.testing.postgres import EmbeddedPostgres
from integration.capture.following import Source, next_batch, table
from integration.facts.conftest import DEBIAN
from integration.facts.edge_values import EDGES, SETUP

NAME = TableName("public", "of every type")
SQL = table_sql(NAME)
COLUMNS = {kind: f'c "{number}"' for number, kind in enumerate(EDGES)}
ROWS = max(map(len, EDGES.values())) + 1
WAYS = {"stream": {"backlog_bytes": None}, "replay": {"backlog_bytes": None}, "backlog": {"backlog_bytes": 1}}
Texts = dict[str, list[str | None]]
"""The values of each type's column in the order of the rows; the last is NULL."""


@dataclass
class Told:
    """What each way told of the same rows."""

    session: ReadSession
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
    if request.param == 15 and not DEBIAN.exists():
        pytest.skip(f"there is no PostgreSQL 15 in {DEBIAN}")
    server = servers(request.param)
    source = Source(server.create_database("of_every_type"))
    edges = EDGES | ({"xml": ()} if request.param == 18 else {})  # the wheel is built without libxml
    rows = [insertion(row, edges) for row in range(ROWS)]
    source.sql(*SETUP, creation(), f"ALTER TABLE {SQL} REPLICA IDENTITY FULL")
    start = source.publish()
    source.transaction(*rows)
    ways = {"snapshot": snapshot(source)}
    source.sql(f"DELETE FROM {SQL}")
    for way, settings in WAYS.items():
        ways[way], ways[f"{way}, old rows"] = followed(source, start, settings)
    source.transaction(*rows)
    with ReadSession(source.url) as session:
        yield Told(session, read_row_types(session, [NAME])[NAME], edges, ways)
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
    columns = ", ".join(printed(identifier(name)) for name in COLUMNS.values())
    with create_slot(source.url, f"{source.slot}_snapshot") as slot:
        with ReadSession(source.url, snapshot=slot.snapshot_name) as session:
            rows = session.query(f"SELECT {columns} FROM {SQL} ORDER BY id")
    with connect(source.url) as connection:
        drop_slot(connection, slot.name)
    assert len(rows) == ROWS
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def followed(source: Source, start: Offset, settings: dict[str, Any]) -> tuple[Texts, Texts]:
    """What a stream tells: the rows when they were inserted, and when they were deleted."""
    with closing(source.stream(start, **settings)) as stream:
        changes, end = [], start
        while len(changes) < 2 * ROWS:
            behind = next_batch(stream, end)
            changes += decode_changes(table(stream, end, behind))
            end = behind
    assert [change.op for change in changes] == ["c"] * ROWS + ["d"] * ROWS
    new = [change.after or {} for change in changes[:ROWS]]
    old = [change.before or {} for change in changes[ROWS:]]
    return tuple(
        {kind: [row.get(name) for row in rows] for kind, name in COLUMNS.items()} for rows in (new, old)
    )


def test_every_row_of_the_table_of_types_has_values_at_its_edge() -> None:
    names = {kind.partition("(")[0].strip('"') for kind in EDGES} | {"varbit", "bpchar"}
    names = {{"char": "bpchar", '"char"': "char"}.get(name, name) for name in names} | {"char"}
    assert {row.names[0] for row in TYPES} - names == set()


@pytest.mark.parametrize("kind", EDGES)
def test_a_value_is_the_same_whichever_way_it_comes(told: Told, kind: str) -> None:
    """As text, as typed value and as JSON. Holes 5 of drasi and 14 of flusso."""
    texts = told.ways["snapshot"][kind]
    assert [text is None for text in texts] == [row >= len(told.edges[kind]) for row in range(ROWS)]
    expected = convert(told.kind(kind), told.texts(kind), kind)
    assert expected.values.type == told.kind(kind).arrow
    expected.values.validate(full=True)
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
    column = read_catalog(told.session, [NAME])[NAME].column(COLUMNS[kind])
    assert column is not None
    documents = told.ask(kind, lambda sql: json_text(column, sql))
    found = json_form(told.kind(kind), told.texts(kind), kind).to_pylist()
    for text in found:
        assert text is None or "\n" not in text
        assert text is None or json.loads(text, parse_float=Decimal) is not ...
    leaf = told.kind(kind)
    leaf = leaf.parts[0] if leaf.form is Form.ARRAY else leaf
    assert documents == (
        [nulled(text) for text in found] if leaf.json in (Json.NUMBER, Json.MOMENT) else found
    )
