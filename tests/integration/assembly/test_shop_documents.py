"""Does the assembly agree with the naive oracle about a shop that has been worked on?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.assembly.assembler import Assembler
from headrace.catalog import read_catalog
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.tools.demo.shop import INDEXES, create_shop, write_deployment
from support.shop_oracle import differences, expected_documents
from support.shop_workload import Workload


@pytest.fixture(scope="module")
def worked_shop(postgres: EmbeddedPostgres) -> Iterator[str]:
    url = postgres.create_database("worked_shop")
    create_shop(url, users=100)
    with Workload(url, seed=5) as workload:
        for _ in range(400):
            workload.step()
    yield url
    postgres.drop_database("worked_shop")


@pytest.mark.long
@pytest.mark.parametrize("index", INDEXES)
def test_every_document_is_what_the_oracle_expects(worked_shop: str, index: str, tmp_path: Path) -> None:
    """All keys that ever were: those of rows that are gone or filtered out give deletes."""
    folder = write_deployment(tmp_path, worked_shop, "").parent
    spec = load_schema(folder / f"{index}.schema.yml", index)
    keys = [(str(key),) for key in range(1, 2000)]
    with ReadSession(worked_shop) as session:
        catalog = read_catalog(session, spec.tables())
        operations = list(Assembler(session, spec, catalog).assemble(keys, version=1))
    found = {one.id: json.loads(one.body, parse_float=Decimal) for one in operations if one.body is not None}
    deleted = {one.id for one in operations if one.body is None}
    expected = expected_documents(worked_shop)[index]
    assert differences(expected, found) == []
    assert len(expected) > 50
    assert deleted == {key for (key,) in keys} - expected.keys()
