"""Which generations a failure concerns."""

from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.pipeline.concerned import is_concerned
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

SCHEMA = """\
version: 1
table: person
primary_key: id
fields:
  - keyword: name
  - has_many: visits
    schema: other
    table: visit
    primary_key: id
    foreign_key: person_id
    fields: [{ integer: day }]
"""


@pytest.fixture
def spec(tmp_path: Path) -> IndexSpec:
    file = tmp_path / "people.yml"
    file.write_text(SCHEMA)
    return load_schema(file, "town_people_0a1b")


@pytest.mark.parametrize(
    ("tables", "units", "concerned"),
    [
        ([], [], True),
        ([], ["town_people_0a1b"], True),
        ([], ["town_people_0a1b-c"], False),
        ([], ["goods_1", "town_people_0a1b"], True),
        ([TableName("public", "person")], [], True),
        ([TableName("other", "visit")], [], True),
        ([TableName("other", "person")], [], False),
        ([TableName("public", "persons")], ["goods_1"], False),
        ([TableName("public", "person")], ["goods_1"], True),
    ],
)
def test_a_failure_concerns_a_generation_by_its_name_or_by_a_table_that_it_reads(
    spec: IndexSpec, tables: list[TableName], units: list[str], *, concerned: bool
) -> None:
    """What its text names does not matter; one that says nothing may concern any."""
    failure = HeadraceError(Kind.SCHEMA_CHANGED, "the table persons was altered")
    assert is_concerned(spec, failure.concerning(tables=tables, units=units)) == concerned
