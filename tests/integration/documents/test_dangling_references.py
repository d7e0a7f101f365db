"""What becomes of a change whose reference is no value of the key's type at all?

No foreign key keeps such a value out. It leads nowhere, and the stream must go on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import bind, read_catalog
from headrace.model.changes import CHANGES_SCHEMA
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver, plan_resolution
from headrace.schema.load import load_schema

SCHEMA = """
version: 1
table: parent
primary_key: id
fields:
  - count: children
    table: child
    foreign_key: parent_id
"""
KEYS = {
    "a larger integer": ("integer", "bigint", "7", "9007199254740993"),
    "a text for a domain": ("public.code", "text", "AB", "no code"),
    "a number for a domain": ("public.positive", "integer", "7", "-7"),
}


@pytest.mark.parametrize("case", KEYS)
def test_it_leads_nowhere(make_database: Callable[..., str], tmp_path: Path, case: str) -> None:
    key, reference, good, bad = KEYS[case]
    url = make_database(
        [
            "CREATE DOMAIN code AS text CHECK (value ~ '^[A-Z]+$')",
            "CREATE DOMAIN positive AS integer CHECK (value > 0)",
            f"CREATE TABLE parent (id {key} PRIMARY KEY)",
            f"CREATE TABLE child (id integer PRIMARY KEY, parent_id {reference})",
            f"INSERT INTO parent VALUES ('{good}')",
            f"INSERT INTO child VALUES (1, '{good}'), (2, '{bad}')",
        ]
    )
    (tmp_path / "parents.schema.yml").write_text(SCHEMA)
    spec = load_schema(tmp_path / "parents.schema.yml", "parents")
    rows = [
        {
            "schema": "public",
            "table": "child",
            "op": "c",
            "after": [("id", "1"), ("parent_id", value)],
            "_commit_lsn": 1,
            "_commit_seq": number,
        }
        for number, value in enumerate((good, bad))
    ]
    with ReadSession(url) as session:
        catalog = read_catalog(session, spec.tables())
        assert bind(spec, catalog) == []
        resolver = Resolver(session, plan_resolution([spec], catalog))
        touched = resolver.resolve(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA))
        keys = [key for _, some in touched.keys for key in some]
        found = {one.id: one.body for one in Assembler(session, spec, catalog).assemble(keys, 1)}
    assert found.pop(good) == b'{"children":1}'
    assert not any(found.values())
