"""Which generations a failure names."""

from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.concerned import is_named
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
    ("kind", "cause", "named"),
    [
        (Kind.TRANSFORM, "the documents of town_people_0a1b cannot be assembled: no", True),
        (Kind.SINK_REJECTED, "3 documents are refused, the first is '1' of index town_people_0a1b: no", True),
        (
            Kind.SINK_REJECTED,
            "3 documents are refused, the first is '1' of index town_people_0a1b-c: no",
            False,
        ),
        (Kind.SINK_REJECTED, "the first is '1' of index my.town_people_0a1b: no", False),
        (Kind.DATABASE, "the table person has a bad block", False),
        (Kind.SCHEMA_CHANGED, "the table person was altered: it has no name", True),
        (Kind.SCHEMA_CHANGED, "the table other.visit was altered: it has no day", True),
        (Kind.SCHEMA_CHANGED, "the table other.person was altered: it has no name", False),
        (Kind.SCHEMA_CHANGED, "the table persons was altered: it has no name", False),
        (Kind.SCHEMA_CHANGED, "the table person.other was altered: it has no name", False),
        (Kind.REPLICA_IDENTITY, "the log of the table person does not carry the old value of name", True),
        (Kind.SCHEMA_CHANGED, "the column name of person. It is gone", True),
    ],
)
def test_a_failure_names_a_generation_or_its_altered_table(
    spec: IndexSpec, kind: Kind, cause: str, named: bool
) -> None:
    assert is_named(spec, HeadraceError(kind, cause)) == named
