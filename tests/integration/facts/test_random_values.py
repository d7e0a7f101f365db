"""Do values of no particular kind, thousands of them, become what the server says they are?"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.value_type import Attribute, DatabaseType, ValueType, resolve
from headrace.model.values import convert_all, json_form
from headrace.model.values.moments import TIMESTAMP_ENDS
from headrace.postgres.quoting import output_text
from headrace.postgres.session import ReadSession

pytestmark = pytest.mark.parametrize("version", [18], indirect=True)

MANY = 3000
FIRST = -210_866_803_200_000_000  # 4714-11-24 BC, µs since 1970
DAY = 86_400_000_000


def kind(name: str, modifier: int = -1) -> ValueType:
    return resolve(Attribute("c", 1, modifier), {1: DatabaseType(1, "pg_catalog", name, "base")})


@pytest.fixture
def session(database: str) -> Iterator[ReadSession]:
    with ReadSession(database) as session:
        yield session


@pytest.mark.parametrize("name", ["date", "timestamp", "timestamptz"])
def test_moments_of_all_ages(session: ReadSession, name: str) -> None:
    chance = random.Random(name)
    unit = DAY if name == "date" else 1
    ages = [
        (FIRST, TIMESTAMP_ENDS.greatest - 1),
        (FIRST, 0),
        (-62_167_219_200_000_000, 253_402_300_799_999_999),
    ]
    numbers = [chance.randrange(*chance.choice(ages)) // unit * unit for _ in range(MANY)]
    sql = f"(timestamp 'epoch' + (x / {DAY}) * interval '1 day' + ((x % {DAY}) || ' us')::interval)"
    if name != "timestamp":
        sql = f"({sql} AT TIME ZONE 'UTC')::{name}"
    rows = session.query(f"SELECT {output_text(sql)} FROM unnest($1::bigint[]) AS x", (numbers,))
    found = convert_all(kind(name), pa.array([text for (text,) in rows]), name)
    integers = found.cast(pa.int32() if name == "date" else pa.int64()).to_pylist()
    assert [one * unit for one in integers] == numbers


def test_floats_keep_every_bit(session: ReadSession) -> None:
    """Hole 14 of flusso: about one float in ten loses its last bit."""
    bits = random.Random(1).randbytes(8 * MANY)
    for name, kind_of, size in (("float8", np.float64, 8), ("float4", np.float32, 4)):
        values = np.frombuffer(bits, kind_of)
        values = values[~np.isnan(values)]
        wide = [struct.unpack("d", struct.pack("d", value))[0] for value in values]
        rows = session.query(f"SELECT {output_text(f'x::{name}')} FROM unnest($1::float8[]) AS x", (wide,))
        found = convert_all(kind(name), pa.array([text for (text,) in rows]), name)
        assert found.to_numpy().tobytes() == values.tobytes(), size


def test_numerics_keep_every_digit(session: ReadSession) -> None:
    """Holes 5 of drasi and 14 of flusso."""
    chance = random.Random(2)
    digits = ["".join(chance.choices("0123456789", k=38)) for _ in range(MANY)]
    texts = [f"{chance.choice(['', '-'])}{one[:28]}.{one[28:]}" for one in digits]
    sql = f"SELECT {output_text('x::numeric(38,10)')} FROM unnest($1::text[]) AS x"
    rows = session.query(sql, (texts,))
    found = convert_all(kind("numeric", (38 << 16) + 10 + 4), pa.array([text for (text,) in rows]), "n")
    assert [int(f"{value:f}".replace(".", "")) for value in found.to_pylist()] == [
        int(text.replace(".", "")) for text in texts
    ]


def test_texts_are_escaped_in_json_as_the_server_does_it(session: ReadSession) -> None:
    chance = random.Random(3)
    letters = [*map(chr, range(1, 0x100)), *'"\\/\u2028\u2029\ufeff\ufffd\U0001f600\U0010ffff']
    texts = ["".join(chance.choices(letters, k=chance.randrange(20))) for _ in range(MANY)]
    rows = session.query("SELECT to_json(x)::text FROM unnest($1::text[]) AS x", (texts,))
    assert json_form(kind("text"), pa.array(texts), "t").to_pylist() == [text for (text,) in rows]


def test_bytes_come_back(session: ReadSession) -> None:
    chance = random.Random(4)
    values = [chance.randbytes(chance.randrange(40)) for _ in range(MANY)]
    rows = session.query(f"SELECT {output_text('x')} FROM unnest($1::bytea[]) AS x", (values,))
    assert convert_all(kind("bytea"), pa.array([text for (text,) in rows]), "b").to_pylist() == values
