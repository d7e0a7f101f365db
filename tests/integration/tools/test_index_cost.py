"""A sample holds live documents from all over the root table, and its cost is that of these documents."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import IndexOptions
from headrace.tools.index_cost import cost_of
from headrace.tools.preview import DocumentSample, SampleLimits, open_preview
from support.oracle import naive_documents

TABLES = """
CREATE TABLE people (id bigint, region int, name text NOT NULL, gone bool NOT NULL DEFAULT false,
    filler text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE people_0 PARTITION OF people FOR VALUES IN (0);
CREATE TABLE people_1 PARTITION OF people FOR VALUES IN (1);
CREATE TABLE pets (id bigint PRIMARY KEY, person_id bigint, region int, name text);
CREATE INDEX ON pets (person_id, region);
INSERT INTO people SELECT i, i % 2, 'näme "' || i, i % 5 = 0, repeat('x', 500)
    FROM generate_series(1, 600) i;
INSERT INTO pets SELECT i, 1 + i * i % 600, (1 + i * i) % 2, 'pet ' || i FROM generate_series(1, 2000) i
"""
SCHEMA = """\
version: 1
table: people
primary_key: [id, region]
soft_delete: {column: gone}
filters: [{column: id, op: gt, value: 10}]
fields:
  - long: id
  - text: name
  - has_many: pets
    table: pets
    primary_key: id
    foreign_key: [person_id, region]
    fields: [{keyword: name}]
"""


@pytest.fixture
def spec(database: str, tmp_path: Path) -> IndexSpec:
    with connect(database) as connection:
        for statement in TABLES.split(";"):
            execute(connection, statement)
    file = tmp_path / "people.schema.yml"
    file.write_text(SCHEMA)
    return load_schema(file, "people")


def sample(database: str, spec: IndexSpec, limits: SampleLimits) -> DocumentSample:
    with open_preview(database, spec) as documents:
        return documents.sample(limits)


def test_the_cost_of_all_documents_is_that_of_those_that_a_preview_shows(
    database: str, spec: IndexSpec
) -> None:
    found = sample(database, spec, SampleLimits(documents=10_000))
    expected = naive_documents(database, [spec])["people"]
    assert sorted(json.loads(body)["id"] for body in found.bodies) == sorted(
        int(id_.partition(":")[0]) for id_ in expected
    )
    with open_preview(database, spec) as documents:
        shown = [documents.document(id_).body or b"" for id_ in expected]
    cost = cost_of(spec, IndexOptions(), found)
    assert (cost.documents, cost.cut_short, cost.unreadable) == (len(expected), False, 0)
    assert (cost.bytes, cost.most_bytes) == (mean(map(len, shown)), max(map(len, shown)))
    pets = [len(document["pets"]) for document in map(json.loads, shown)]
    [lists] = [field for field in cost.fields if field.type == "nested"]
    assert (lists.nested, lists.most_nested) == (mean(pets), max(pets))
    assert (cost.lucene_documents, cost.most_lucene_documents) == (1 + mean(pets), 1 + max(pets))
    texts = [json.dumps(document["pets"], ensure_ascii=False) for document in map(json.loads, shown)]
    assert lists.bytes == mean(len(text.replace(": ", ":").replace("}, {", "},{")) + 7 for text in texts)


def test_a_sample_is_spread_over_the_table_and_its_partitions(database: str, spec: IndexSpec) -> None:
    found = [json.loads(body)["id"] for body in sample(database, spec, SampleLimits(documents=40)).bodies]
    assert 20 <= len(found) <= 40
    assert len(set(found)) == len(found)
    assert {id_ % 2 for id_ in found} == {0, 1}
    assert min(found) < 150
    assert max(found) > 350


def test_bytes_and_time_end_a_sample_early(database: str, spec: IndexSpec) -> None:
    few = sample(database, spec, SampleLimits(documents=400, bytes=1))
    assert (len(few.bodies), few.cut_short) == (20, True)
    with connect(database) as connection:
        execute(
            connection,
            "CREATE FUNCTION public.slow(bigint) RETURNS bool LANGUAGE sql STABLE AS "
            "'SELECT pg_sleep(0.02) IS NOT NULL'",
        )
    file = spec.place.file
    file.write_text(SCHEMA.replace("[{column", "[{raw: 'public.slow(id)'}, {column"))
    slow = sample(database, load_schema(file, "people"), SampleLimits(documents=400, seconds=0.2))
    assert slow.cut_short
    assert len(slow.bodies) < 400


def test_a_document_that_cannot_be_read_is_counted(database: str, spec: IndexSpec) -> None:
    spec.place.file.write_text(SCHEMA.replace("[{column", "[{raw: '1 / (id - 52) < 9'}, {column"))
    found = sample(database, load_schema(spec.place.file, "people"), SampleLimits(documents=10_000))
    assert found.unreadable == 1
    assert {51, 53} <= {json.loads(body)["id"] for body in found.bodies}


def test_what_the_schema_names_and_the_database_lacks_is_an_error(database: str, spec: IndexSpec) -> None:
    with connect(database) as connection:
        execute(connection, "ALTER TABLE pets RENAME name TO nickname")
    with pytest.raises(HeadraceError) as raised:
        sample(database, spec, SampleLimits())
    assert raised.value.kind is Kind.BINDING
