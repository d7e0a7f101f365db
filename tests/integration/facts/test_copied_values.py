"""Do values that come in binary form equal what the server prints of them, whatever they are?"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.catalog.types import RowType, read_row_types
from headrace.model.names import CtidRange, TableName
from headrace.model.values import convert
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.copying import RowSession
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.session import ReadSession
from headrace.snapshot.reading import RowSelection, read_part

pytestmark = pytest.mark.parametrize("version", [18], indirect=True)

NAME = TableName("public", "copied")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
MOMENTS = st.sampled_from(
    ["infinity", "-infinity", "4714-11-24 BC", "0044-03-15 BC", "1999-12-31", "2000-01-01"]
)
CLOCKS = MOMENTS | st.datetimes().map(str) | st.sampled_from(["294246-12-31 23:59:59.999999"])


def whole(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


def decimals(digits: int, scale: int) -> st.SearchStrategy[str]:
    bound = 10**digits - 1
    return st.integers(-bound, bound).map(lambda number: f"{number}e{-scale}")


COLUMNS = {
    "bool": st.booleans().map(str),
    "bytea": st.binary(max_size=9).map(lambda value: "\\x" + value.hex()),
    "int2": whole(16),
    "int4": whole(32),
    "int8": whole(64),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "float4": st.floats(width=32).map(str),
    "float8": st.floats().map(str),
    "numeric(12,2)": decimals(12, 2),
    "numeric(18,0)": decimals(18, 0),
    "numeric(18,16)": decimals(18, 16),
    "numeric(15,1)": decimals(15, 1),
    "numeric(18,2)": decimals(18, 2),
    "numeric(3,-2)": decimals(3, -2),
    "numeric(2,5)": decimals(2, 5),
    "numeric(38,10)": decimals(38, 10),
    "numeric": decimals(30, 9) | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    "text": TEXTS,
    "varchar(9)": TEXTS,
    "char(9)": TEXTS,
    "json": TEXTS.map(lambda text: '"' + "".join(f"\\u{ord(one) % 0xD800 or 1:04x}" for one in text) + '"'),
    "date": MOMENTS | st.dates().map(str),
    "timestamp": CLOCKS,
    "timestamptz": CLOCKS,
    "interval": st.integers(-(10**6), 10**6).map(lambda n: f"{n} mons {-n} days {n}.5 s"),
    "int4range": st.sampled_from(["empty", "(,)", "[1,5)", "(,3)"]),
    "int4[]": st.lists(st.none() | st.integers(-9, 9), max_size=3).map(
        lambda items: "{" + ",".join("NULL" if item is None else str(item) for item in items) + "}"
    ),
}
ROWS = st.lists(st.tuples(*(st.none() | values for values in COLUMNS.values())), min_size=1, max_size=20)


class Tables:
    """A table with a column of each type."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url, self._connection = url, connection
        names = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
        execute(connection, f"CREATE TABLE copied ({names})")
        with ReadSession(url) as session:
            self.row_type: RowType = read_row_types(session, [NAME])[NAME]

    def fill(self, rows: list[tuple[str | None, ...]]) -> None:
        execute(self._connection, "TRUNCATE copied")
        marks = ", ".join(f"${at + 1}::text::{kind}" for at, kind in enumerate(COLUMNS))
        for row in rows:
            execute(self._connection, f"INSERT INTO copied VALUES ({marks})", row)


@pytest.fixture
def tables(database: str) -> Iterator[Tables]:
    with connect(database) as connection:
        yield Tables(database, connection)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(ROWS, st.sampled_from([1, 1 << 20]))
def test_a_copied_row_is_what_its_text_stands_for(
    tables: Tables, rows: list[tuple[str | None, ...]], batch_bytes: int
) -> None:
    """In one batch, and in batches of one row."""
    tables.fill(rows)
    kinds = tables.row_type.columns
    schema = pa.schema([(name, kind.arrow) for name, kind in kinds.items()])
    with RowSession(tables.url) as session:
        selection = RowSelection(tables.row_type, tuple(kinds))
        found = pa.Table.from_batches(
            read_part(session, selection, CtidRange(0, None), schema, batch_bytes), schema
        ).combine_chunks()
    with ReadSession(tables.url) as session:
        texts = ", ".join(output_text(identifier(name)) for name in kinds)
        columns = list(zip(*session.query(f"SELECT {texts} FROM public.copied"), strict=True))
    for (name, kind), printed in zip(kinds.items(), columns, strict=True):
        expected = convert(kind, pa.array(printed, pa.string()), name)
        assert not len(expected.unfit)
        assert same(found[name].chunk(0), expected.values), (name, kind.name)


def same(found: pa.Array, expected: pa.Array) -> bool:
    """Compare also what no value of Python shows: far moments, and NaN."""
    return (
        found.type == expected.type and str(found) == str(expected) and found.is_null() == expected.is_null()
    )
