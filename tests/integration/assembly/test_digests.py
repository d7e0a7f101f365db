"""The digests of all documents, a range of keys at a time, are those of what assembly makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.assembly.digests import Digest, DigestRanges, Presence, Sample, digest_of
from headrace.catalog import Catalog, read_catalog
from headrace.model.changes import key_of_id
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

_TABLES = (
    "CREATE EXTENSION IF NOT EXISTS citext SCHEMA public",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE DOMAIN temper AS mood",
    "CREATE TABLE words (word citext, mood temper, at timestamptz, note text, PRIMARY KEY (word, mood, at))",
    "CREATE TABLE names (name citext PRIMARY KEY, note text)",
    "CREATE TABLE numbers (n double precision PRIMARY KEY, note text)",
    "CREATE TABLE pairs (a int, b int NOT NULL, note text, PRIMARY KEY (b, a))",
    """INSERT INTO words SELECT w, m, '2026-01-01'::timestamptz + i * '1 s'::interval, repeat('é', i)
       FROM unnest(ARRAY['b', 'B2', 'a', 'Ä', 'Zz']) AS w, unnest(enum_range(NULL::mood)) AS m,
            generate_series(1, 4) AS i""",
    "INSERT INTO names SELECT unnest(ARRAY['b', 'A', 'c', 'Ä', 'zZ', 'aa', 'AB']), 'x'",
    "INSERT INTO numbers SELECT unnest(ARRAY['-Infinity', 'NaN', '0.1', '1e300', '-7']::float8[]), 'x'",
    "INSERT INTO pairs SELECT a, b, NULL FROM generate_series(1, 5) AS a, generate_series(1, 5) AS b",
)
_KEYS = {"words": "[at, word, mood]", "names": "name", "numbers": "n", "pairs": "[a, b]"}


class Rows:
    """A session on the tables, and the index of each."""

    def __init__(self, url: str, folder: Path) -> None:
        self.session = ReadSession(url)
        self.specs: dict[str, IndexSpec] = {}
        for table, key in _KEYS.items():
            path = folder / f"{table}.schema.yml"
            path.write_text(
                f"version: 1\ntable: {table}\nprimary_key: {key}\nfields: [{{ keyword: note }}]\n"
            )
            self.specs[table] = load_schema(path, table)
        tables = frozenset(name for spec in self.specs.values() for name in spec.tables())
        self.catalog: Catalog = read_catalog(self.session, tables)

    def ranges(self, table: str, most: int, sample: Sample | None = None) -> list[Digest]:
        ranges = DigestRanges(self.session, self.specs[table], self.catalog, sample)
        found: list[Digest] = []
        while some := ranges.next(most):
            assert len(some) <= most
            found += some
        return found


@pytest.fixture
def rows(database: str, tmp_path: Path) -> Iterator[Rows]:
    with connect(database) as connection:
        execute(connection, "SET search_path = public")
        for statement in _TABLES:
            execute(connection, statement)
    held = Rows(database, tmp_path)
    yield held
    held.session.close()


@pytest.mark.parametrize("table", _KEYS)
def test_every_document_once_whatever_orders_its_key(rows: Rows, table: str) -> None:
    """Also where the type's order is an extension's, which is not found by its bare symbol (citext)."""
    width = _KEYS[table].count(",") + 1
    whole = rows.ranges(table, 1000)
    assert [one.id for one in rows.ranges(table, 3)] == [one.id for one in whole]
    assembler = Assembler(rows.session, rows.specs[table], rows.catalog)
    made = {one.id: one.body for one in assembler.assemble([key_of_id(one.id, width) for one in whole], 1)}
    assert len(made) == len(whole) == rows.session.query(f"SELECT count(*) FROM public.{table}")[0][0]
    for one in whole:
        body = made[one.id]
        assert body is not None
        assert (one.size, one.digest) == (len(body), digest_of(body))


def drop_some_and_add_length(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A transform."""
    ids = batch.column("id").to_pylist()
    kept = [None if id_ in "ab" else f'{{"length":{len(id_)}}}' for id_ in ids]
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(kept, pa.string())], names=["id", "document"])


def test_what_a_transform_makes_of_the_documents_counts(rows: Rows) -> None:
    """Also that it does not keep some."""
    transform = f"{__name__}:drop_some_and_add_length"
    rows.specs["names"] = dataclasses.replace(rows.specs["names"], transform=transform)
    found = {one.id: one.digest for one in rows.ranges("names", 3)}
    assert len(found) == 7
    assert found["b"] is None
    assert found["AB"] == digest_of(b'{"length":2}')


def test_the_database_draws_the_same_lots(rows: Rows) -> None:
    sample = Sample(40, "sëed")
    chosen = {one.id for one in rows.ranges("words", 7, sample)}
    ids = {one.id for one in rows.ranges("words", 1000)}
    assert chosen == {id_ for id_ in ids if sample.holds(id_)}
    assert 0 < len(chosen) < len(ids)
    assert rows.ranges("words", 7, Sample(0, "x")) == []
    assert len(rows.ranges("words", 7, Sample(100, "x"))) == len(ids)


def test_an_id_that_no_row_can_have_is_no_error(rows: Rows) -> None:
    presence = Presence(rows.session, rows.specs["pairs"], rows.catalog)
    odd = ["x:1", "1", "1:2:3", "99999999999:1", "1:1\0", "", ":", "1:", "01:1", "9:9", "1:1"]
    found = presence.read(odd)
    assert set(found.stamps) == {"1:1"}
    assert set(found.keys) == {"01:1", "9:9", "1:1"}


def test_a_row_that_is_written_again_has_another_stamp(rows: Rows, database: str) -> None:
    presence = Presence(rows.session, rows.specs["pairs"], rows.catalog)
    before = presence.read(["1:1", "2:1"]).stamps
    with connect(database) as connection:
        execute(connection, "UPDATE public.pairs SET note = 'again' WHERE a = 1 AND b = 1")
    after = presence.read(["1:1", "2:1"]).stamps
    assert after["1:1"] != before["1:1"]
    assert after["2:1"] == before["2:1"]
