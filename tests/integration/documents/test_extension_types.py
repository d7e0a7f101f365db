"""Values of pgvector and PostGIS in documents and in Spark's types, where the server has the extension."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import bind, read_catalog
from headrace.catalog.types import read_row_types
from headrace.errors import HeadraceError
from headrace.model.names import CtidRange, TableName
from headrace.model.values.convert import convert
from headrace.model.values.json_form import json_form
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema

PIECE = TableName("public", "piece")
PLACE = TableName("public", "place")


def prepare(url: str, extension: str, *statements: str) -> None:
    """Run statements in a database with an extension; skip where the server has no such extension."""
    with connect(url) as connection:
        known = execute(connection, "SELECT 1 FROM pg_available_extensions WHERE name = $1", (extension,))
        if not known:
            pytest.skip(f"this server has no {extension}")
        execute(connection, "CREATE SCHEMA ext")
        execute(connection, f"CREATE EXTENSION {extension} SCHEMA ext")
        for statement in statements:
            execute(connection, statement)


def documents(url: str, folder: Path, schema: str) -> dict[str, Any]:
    file = folder / "piece.schema.yml"
    file.write_text("version: 1\n" + schema)
    spec = load_schema(file, "piece")
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        assert bind(spec, catalog) == []
        operations = Assembler(session, spec, catalog).assemble_range(CtidRange(0, None), 1)
        return {operation.id: json.loads(operation.body or b"") for operation in operations}


VECTORS = """
table: piece
primary_key: id
fields:
  - {custom: whole, postgres: [vector], opensearch: knn_vector, options: {dimension: 3}}
  - {custom: half, postgres: [halfvec], opensearch: float}
  - {custom: many, postgres: ["vector[]"], opensearch: float}
  - {custom: pair, postgres: [ext.pair], opensearch: object}
  - {custom: few, postgres: [sparsevec], opensearch: keyword}
"""


@pytest.fixture
def vectors(database: str) -> str:
    prepare(
        database,
        "vector",
        "CREATE TYPE ext.pair AS (n int, v ext.vector)",
        """CREATE TABLE piece (id int PRIMARY KEY, whole ext.vector(3), half ext.halfvec(2),
                                many ext.vector[], pair ext.pair, few ext.sparsevec(5))""",
        """INSERT INTO piece VALUES (1, '[1,-0.5,1e-8]', '[0.1,65504]', ARRAY['[1,2]'::ext.vector, NULL],
                                      ROW(7, '[1,2]'::ext.vector), '{1:1,3:2}/5')""",
        "INSERT INTO piece VALUES (2)",
    )
    return database


def test_a_vector_is_a_list_of_numbers_in_documents(vectors: str, tmp_path: Path) -> None:
    found = documents(vectors, tmp_path, VECTORS)
    assert found["1"] == {
        "whole": [1, -0.5, 1e-8],
        "half": [0.099975586, 65504],
        "many": [[1, 2], None],
        "pair": {"n": 7, "v": "[1,2]"},
        "few": "{1:1,3:2}/5",
    }
    assert found["2"] == dict.fromkeys(found["1"])


def test_a_vector_is_a_list_of_floats_in_spark_and_in_lakes(vectors: str) -> None:
    with ReadSession(vectors) as session:
        kinds = read_row_types(session, [PIECE])[PIECE].columns
        texts = session.query(
            "SELECT whole::text, half::text, many::text, pair::text FROM public.piece ORDER BY id"
        )
    assert (kinds["whole"].spark, kinds["many"].spark) == ("array<float>", "array<array<float>>")
    assert kinds["few"].spark == "string"
    columns = {
        name: pa.array([row[number] for row in texts], pa.string())
        for number, name in enumerate(("whole", "half", "many", "pair"))
    }
    found = {name: convert(kinds[name], texts, name).values.to_pylist() for name, texts in columns.items()}
    assert found["whole"] == [pytest.approx([1, -0.5, 1e-8]), None]
    assert found["half"] == [pytest.approx([0.1, 65504], rel=1e-3), None]
    assert found["many"] == [[[1, 2], None], None]
    assert found["pair"] == [{"n": 7, "v": [1, 2]}, None]
    as_json = {name: json_form(kinds[name], texts, name).to_pylist() for name, texts in columns.items()}
    assert as_json["whole"] == ["[1,-0.5,1e-08]", None]
    assert as_json["many"] == ["[[1,2],null]", None]
    assert as_json["pair"] == ['{"n":7,"v":"[1,2]"}', None]


def test_a_type_of_ones_own_that_is_called_vector_stays_what_it_is(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        execute(connection, "CREATE TYPE public.vector AS (x int, y int)")
        execute(connection, "CREATE TABLE piece (id int PRIMARY KEY, v public.vector, many public.vector[])")
        execute(connection, "INSERT INTO piece VALUES (1, ROW(1, 2), ARRAY[ROW(3, 4)::public.vector])")
    schema = """
table: piece
primary_key: id
fields:
  - {custom: v, postgres: [public.vector], opensearch: object}
  - {custom: many, postgres: ["public.vector[]"], opensearch: object}
"""
    assert documents(database, tmp_path, schema)["1"] == {"v": {"x": 1, "y": 2}, "many": [{"x": 3, "y": 4}]}


SHAPES = """
table: place
primary_key: id
fields:
  - {custom: shape, postgres: [geometry], opensearch: geo_shape}
  - {custom: area, postgres: [geography], opensearch: geo_shape}
"""


@pytest.fixture
def shapes(database: str) -> str:
    prepare(
        database,
        "postgis",
        "CREATE TABLE place (id int PRIMARY KEY, shape ext.geometry, area ext.geography)",
        """INSERT INTO place VALUES
           (1, 'POLYGON((0 0,1 0,1 1,0 0))', 'SRID=4326;LINESTRING(7 50,8 51)'),
           (2, ext.st_transform('SRID=4326;POINT(7.1 50.7)'::ext.geometry, 3857), NULL)""",
    )
    return database


def test_a_shape_of_postgis_is_geojson_in_degrees(shapes: str, tmp_path: Path) -> None:
    found = documents(shapes, tmp_path, SHAPES)
    assert found["1"] == {
        "shape": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]},
        "area": {"type": "LineString", "coordinates": [[7, 50], [8, 51]]},
    }
    assert found["2"]["area"] is None
    assert found["2"]["shape"]["type"] == "Point"
    assert found["2"]["shape"]["coordinates"] == pytest.approx([7.1, 50.7])


def test_a_curve_which_geojson_lacks_is_an_error_of_its_row(shapes: str, tmp_path: Path) -> None:
    with connect(shapes) as connection:
        execute(connection, "INSERT INTO place VALUES (3, 'CIRCULARSTRING(0 0,1 1,2 0)', NULL)")
    with pytest.raises(HeadraceError, match="SQLSTATE 22P02"):
        documents(shapes, tmp_path, SHAPES)
