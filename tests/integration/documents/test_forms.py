"""Whichever way related rows are read, documents are the same bytes, and those that the oracle expects.

Schemas and rows are those of the random cases (test_documents.py); about half of the indexes on references
are left out, so that every mixture of lookups and sets occurs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest

from headrace.assembly.lowering import plan_document
from headrace.assembly.plan import DocumentPlan
from headrace.assembly.read_strategies import ReadStrategy
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import Catalog, complete, read_catalog
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import CtidRange
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as table_sql
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from support.oracle import naive_documents
from support.shop_oracle import differences
from support.soak.case_run import database_of, make_template
from support.soak.cases import Case, make_case
from support.soak.random_schemas import text_of

SEEDS = range(300, 330)

Documents = dict[str, str | None]


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> EmbeddedPostgres:
    make_template(postgres)
    return postgres


@pytest.mark.parametrize("seed", SEEDS)
def test_every_form_gives_the_same_documents(server: EmbeddedPostgres, seed: int, tmp_path: Path) -> None:
    case, random = make_case(seed), Random(seed)
    with database_of(server, f"forms_{seed}") as url, ReadSession(url) as session:
        fill(case, url, random)
        for spec in load(case, tmp_path):
            catalog = read_catalog(session, spec.tables())
            whole = complete(spec, catalog)
            plan = plan_document(whole, catalog)
            keys = requested(url, session, plan)
            found = {form: by_keys(session, plan, keys, form) for form in ReadStrategy}
            assert found[ReadStrategy.MIXED] == found[ReadStrategy.CORRELATED]
            assert found[ReadStrategy.AGGREGATED] == found[ReadStrategy.CORRELATED]
            live = {id_: text for id_, text in found[ReadStrategy.CORRELATED].items() if text is not None}
            for form in ReadStrategy:
                assert by_range(session, plan, catalog, form) == live
            [expected] = naive_documents(url, [whole]).values()
            actual = {id_: json.loads(text, parse_float=Decimal) for id_, text in live.items()}
            assert differences(expected, actual) == []  # type: ignore[arg-type]


def fill(case: Case, url: str, random: Random) -> None:
    """Tables, about half of their indexes, rows."""
    with connect(url) as connection:
        for sql in case.database.statements():
            if not sql.startswith("CREATE INDEX") or random.random() < 0.5:
                execute(connection, sql)
        for sql in case.fill:
            with contextlib.suppress(connection.IntegrityError):
                execute(connection, sql)


def load(case: Case, folder: Path) -> Iterator[IndexSpec]:
    for name, schema in case.schemas.items():
        path = folder / f"{name}.schema.yml"
        path.write_text(text_of(schema), encoding="utf-8")
        yield load_schema(path, name)


def requested(url: str, session: ReadSession, plan: DocumentPlan) -> list[list[str]]:
    """The keys of all rows, each twice in some spelling, and of some that are gone; as columns."""
    names = ", ".join(f"{identifier(column.name)}::text" for column in plan.key)
    rows = session.query(f"SELECT {names} FROM {table_sql(plan.table.name)}")
    with connect(url) as connection:
        for row in rows[:3]:
            pairs = zip(plan.key, row, strict=True)
            found = " AND ".join(f"{identifier(column.name)} = {literal(value)}" for column, value in pairs)
            with contextlib.suppress(connection.IntegrityError):
                execute(connection, f"DELETE FROM {table_sql(plan.table.name)} WHERE {found}")
    parts = list(zip(*rows, strict=True)) or [() for _ in plan.key]
    return [
        [*part, *(value.upper() if column.base_type in ("citext", "uuid") else value for value in part)]
        for column, part in zip(plan.key, parts, strict=True)
    ]


def by_keys(session: ReadSession, plan: DocumentPlan, keys: list[list[str]], form: ReadStrategy) -> Documents:
    rows = session.query(keys_statement(plan, form), keys)
    found = dict(rows)
    assert len(found) == len(rows)
    return found


def by_range(session: ReadSession, plan: DocumentPlan, catalog: Catalog, form: ReadStrategy) -> Documents:
    found: Documents = {}
    tables = catalog[plan.table.name].partitions or (plan.table.name,)
    for table in tables:
        part = CtidRange(0, None, table)
        found |= dict(session.query(range_statement(plan, part, form), range_parameters(part)))
    return found
