"""What a click adds to a schema file whose rows are identified by another key than the primary one."""

from __future__ import annotations

from headrace.catalog import Catalog, Column, ForeignKey, Table, UniqueKey
from headrace.catalog.binding import bind
from headrace.catalog.hints import Hints
from headrace.catalog.relations import find_relations
from headrace.model.names import TableName
from headrace.tools.designer.database import DatabaseFacts
from headrace.tools.designer.edits import Edit, apply, parse

USERS, ORDERS, PETS = (TableName("public", name) for name in ("users", "orders", "pets"))


def table(name: TableName, keys: str, *foreign_keys: ForeignKey) -> Table:
    columns = (*keys.split(), *(column for key in foreign_keys for column in key.columns))
    unique = [UniqueKey(key, (key,), primary=key == "id", not_null=True) for key in keys.split()]
    return Table(
        name=name,
        oid=1,
        kind="r",
        columns=tuple(
            Column(each, "int8", "int8", "pg_catalog", "N", not_null=True, generated=False)
            for each in columns
        ),
        unique_keys=tuple(unique),
        foreign_keys=foreign_keys,
        indexed=tuple((each,) for each in columns),
        replica_identity="default",
        identity_columns=("id",),
        row_estimate=1,
    )


def test_rows_below_a_join_by_another_key_refer_to_the_primary_one() -> None:
    tables = [
        table(USERS, "id code"),
        table(ORDERS, "id", ForeignKey(("ucode",), USERS, ("code",))),
        table(PETS, "id", ForeignKey(("user_id",), USERS, ("id",))),
    ]
    facts = DatabaseFacts("shop", Catalog({each.name: each for each in tables}), Hints())
    text = facts.suggester.schema(ORDERS)
    [pets] = [each for each in find_relations(facts.catalog, tables[0], ("code",)) if each.target == PETS]
    edited = apply(text, Edit(op="relation", at=("users",), relation=pets.id), facts)
    assert "references: id" in edited
    assert bind(parse(edited, "orders.schema.yml", "orders"), facts.catalog) == []
    for op in ("count", "ids"):
        counted = apply(text, Edit(op="aggregate", at=("users",), relation=pets.id, word=op), facts)
        assert bind(parse(counted, "orders.schema.yml", "orders"), facts.catalog) == []
