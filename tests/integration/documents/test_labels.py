"""Values are still in the log that are none of their column's type any more: a label, or the type, is new."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import read_catalog
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver, plan_resolution
from headrace.schema.load import load_schema
from reference.touched import gathered

DDL = """
CREATE TYPE kind AS ENUM ('a', 'b');
CREATE TABLE team (id int PRIMARY KEY, kind kind UNIQUE);
CREATE TABLE rule (id int PRIMARY KEY, kind kind);
INSERT INTO team VALUES (1, 'a'), (2, 'b');
ALTER TYPE kind RENAME VALUE 'a' TO 'c'
"""
SCHEMA = """
version: 1
table: team
primary_key: id
fields:
  - belongs_to: rule
    table: rule
    column: kind
    primary_key: kind
    fields: [{ integer: id }]
"""


def change(label: str, commit_lsn: int) -> dict[str, object]:
    return {
        "schema": "public",
        "table": "rule",
        "op": "c",
        "after": [("id", "1"), ("kind", label)],
        "_commit_lsn": commit_lsn,
    }


def test_an_old_label_is_harmless_before_the_documents_and_no_failure_for_ever_behind(
    database: str, tmp_path: Path
) -> None:
    """Sequin 2149: a value that an enum does not know ends in a crash loop."""
    with connect(database) as connection:
        for statement in DDL.split(";"):
            execute(connection, statement)
    (tmp_path / "teams.yml").write_text(SCHEMA)
    spec = load_schema(tmp_path / "teams.yml", "teams")
    with ReadSession(database) as session:
        plan = plan_resolution([spec], read_catalog(session, spec.tables()), {"teams": 100})
        resolver = Resolver(session, plan)

        def touched(*changes: dict[str, object]) -> list[tuple[str | None, ...]]:
            found = gathered(resolver.resolve(pa.Table.from_pylist(list(changes), schema=CHANGES_SCHEMA)))
            return found["teams"].keys if found else []

        assert touched(change("c", 90), change("b", 110)) == [("1",), ("2",)]
        assert touched(change("a", 90), change("b", 110)) == [("2",)]
        with pytest.raises(HeadraceError) as caught:
            touched(change("b", 90), change("a", 110))
    assert caught.value.kind is Kind.SCHEMA_CHANGED


ALTERED = """
CREATE TABLE team (id uuid PRIMARY KEY, since date UNIQUE);
CREATE TABLE rule (id int PRIMARY KEY, since date UNIQUE);
INSERT INTO team VALUES ('00000000-0000-0000-0000-000000000001', '2024-02-29')
"""
SINCE = SCHEMA.replace("column: kind", "column: since").replace("primary_key: kind", "primary_key: since")


def test_values_of_another_type_lead_nowhere(database: str, tmp_path: Path) -> None:
    """A key was a number when its row was written, a reference a text: nobody is to stumble over them."""
    with connect(database) as connection:
        for statement in ALTERED.split(";"):
            execute(connection, statement)
    (tmp_path / "teams.yml").write_text(SINCE)
    spec = load_schema(tmp_path / "teams.yml", "teams")
    one = "00000000-0000-0000-0000-000000000001"
    changes = [
        {**change("", 90), "after": [("id", "1"), ("since", text)]} for text in ("", "2024-02-29", "none")
    ] + [{**change("", 90), "table": "team", "after": [("id", text)]} for text in ("5", one, "6")]
    with ReadSession(database) as session:
        catalog = read_catalog(session, spec.tables())
        resolver = Resolver(session, plan_resolution([spec], catalog, {"teams": 100}))
        keys = gathered(resolver.resolve(pa.Table.from_pylist(changes, schema=CHANGES_SCHEMA)))["teams"].keys
        assert [(found.id, found.body) for found in Assembler(session, spec, catalog).assemble(keys, 1)] == [
            (one, b'{"rule":null}')
        ]
