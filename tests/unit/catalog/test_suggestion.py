"""What a first schema file takes of tables, from their names, keys, types and comments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.catalog import Catalog, Column, ForeignKey, Table, UniqueKey, suggest_schema
from headrace.catalog.binding import findings
from headrace.catalog.checks import Fanout
from headrace.catalog.hints import Hints
from headrace.catalog.relations import find_relations
from headrace.catalog.suggestion import suggest_file
from headrace.model.names import TableName
from headrace.schema.load import parse_schema
from headrace.schema.tree import AggregateField, ColumnField, IndexSpec, JoinField
from headrace.schema.yaml_nodes import source_of

CATEGORIES = {"int8": "N", "numeric": "N", "bool": "B", "timestamptz": "D", "text": "S", "public.mood": "E"}


def name(table: str) -> TableName:
    return TableName("public", table)


def table(title: str, columns: str, *, key: str = "id", unique: str = "", **references: str) -> Table:
    """Make a table: `columns` like `id:int8! note:text`, references like `user_id="users"`."""
    made = []
    for text in columns.split():
        column, _, kind = text.partition(":")
        kind, must = kind.removesuffix("!"), kind.endswith("!")
        made.append(Column(column, kind, kind, "pg_catalog", CATEGORIES[kind], must, generated=False))
    keys = [UniqueKey("key", tuple(key.split()), primary=True, not_null=True)] if key else []
    keys += [UniqueKey("unique", (unique,), primary=False, not_null=True)] if unique else []
    return Table(
        name=name(title),
        oid=1,
        kind="r",
        columns=tuple(made),
        unique_keys=tuple(keys),
        foreign_keys=tuple(ForeignKey((own,), name(other), ("id",)) for own, other in references.items()),
        indexed=tuple(each.columns for each in keys) + tuple((own,) for own in references),
        replica_identity="default",
        identity_columns=("id",),
        row_estimate=1,
    )


def suggested(root: str, *tables: Table, hints: Hints | None = None) -> tuple[str, IndexSpec]:
    """The text, and what it is read as; it must fit its tables."""
    catalog = Catalog({each.name: each for each in tables})
    text = suggest_schema(catalog, name(root), hints)
    spec = parse_schema(source_of(Path("it.schema.yml"), text), text, "it")
    assert findings(spec, catalog) == []
    return text, spec


def joins(fields: tuple[object, ...]) -> dict[str, JoinField]:
    return {each.key: each for each in fields if isinstance(each, JoinField)}


USERS = table("users", "id:int8! email:text! name:text", unique="email")
ORDERS = table("orders", "id:int8! user_id:int8! total:numeric", user_id="users")


@pytest.mark.parametrize(
    ("column", "is_marker"),
    [
        ("deleted_at:timestamptz", True),
        ("is_deleted:bool!", True),
        ("deletedAt:timestamptz", True),
        ("removed_on:timestamptz", True),
        ("deleted_at:timestamptz!", False),
        ("deleted_by:text", False),
        ("deleted_count:int8", False),
    ],
)
def test_rows_that_are_marked_as_deleted_are_no_documents(column: str, is_marker: bool) -> None:
    _, spec = suggested("users", table("users", f"id:int8! {column}"))
    marker = column.partition(":")[0]
    assert (spec.soft_delete.column if spec.soft_delete else None) == (marker if is_marker else None)
    assert [each.key for each in spec.fields] == ["id"] + [marker] * (not is_marker)


@pytest.mark.parametrize(
    ("column", "op"),
    [("deleted_at:timestamptz", "is_null"), ("deleted:bool!", "eq"), ("isDeleted:bool", "raw")],
)
def test_deleted_rows_of_other_tables_are_left_out(column: str, op: str) -> None:
    orders = table("orders", f"id:int8! user_id:int8! {column}", user_id="users")
    _, spec = suggested("users", USERS, orders)
    assert [condition.op for condition in joins(spec.fields)["orders"].filters] == [op]


def test_enums_have_their_labels_in_order() -> None:
    users = table("users", "id:int8! mood:public.mood state:text")
    hints = Hints(labels={"public.mood": ("low", "yes", "2")})
    text, spec = suggested("users", users, hints=hints)
    found = {each.key: each for each in spec.fields if isinstance(each, ColumnField)}
    assert found["mood"].variants == ("low", "yes", "2")
    assert 'variants: [low, yes, "2"]' in text
    assert found["state"].tag == "keyword"


def test_comments_of_the_database_are_descriptions() -> None:
    comments = {
        (name("users"), ""): "People: all of them",
        (name("users"), "name"): "What people\n call them",
        (name("users"), "email"): "x" * 400,
        (name("orders"), ""): "# 'not' a comment",
    }
    _, spec = suggested("users", USERS, ORDERS, hints=Hints(comments=comments))
    found = {each.key: each.description for each in spec.fields}
    assert spec.description == "People: all of them"
    assert found["name"] == "What people call them"
    assert found["orders"] == "# 'not' a comment"
    assert found["email"].endswith("x…")


def test_secrets_stay_out() -> None:
    users = table("users", "id:int8! password_hash:text apiKey:text token_count:int8")
    text, spec = suggested("users", users)
    assert [each.key for each in spec.fields] == ["id", "token_count"]
    assert "# password_hash: looks like a secret" in text


@pytest.mark.parametrize(
    ("more", "kind"),
    [("", "many_to_many"), ("created_at:timestamptz", "many_to_many"), ("since:timestamptz", "has_many")],
)
def test_a_junction_only_links(more: str, kind: str) -> None:
    tags = table("tags", "id:int8! name:text")
    links = table(
        "user_tags",
        f"user_id:int8! tag_id:int8! {more}",
        key="user_id tag_id",
        user_id="users",
        tag_id="tags",
    )
    catalog = Catalog({each.name: each for each in (USERS, tags, links)})
    [relation] = find_relations(catalog, USERS)
    assert relation.kind == kind


@pytest.mark.parametrize(
    ("root", "names"),
    [
        ("users", {"orders_by_buyer", "orders_by_seller", "users_by_follower", "users_by_followed", "notes"}),
        ("orders", {"users_by_buyer", "users_by_seller", "courier"}),
    ],
)
def test_two_ways_to_one_table_are_told_apart_by_their_columns(root: str, names: set[str]) -> None:
    """The second one was called like the table, with a number."""
    orders = table(
        "orders",
        "id:int8! buyer:int8! seller:int8! courier_id:int8",
        buyer="users",
        seller="users",
        courier_id="couriers",
    )
    follows = table(
        "follows",
        "follower_id:int8! followed_id:int8!",
        key="follower_id followed_id",
        follower_id="users",
        followed_id="users",
    )
    notes = table("notes", "id:int8! user_id:int8!", user_id="users")
    couriers = table("couriers", "id:int8! name:text")
    _, spec = suggested(root, USERS, orders, follows, notes, couriers)
    assert set(joins(spec.fields)) == names


def test_keys_that_share_a_column_are_told_apart_by_the_other() -> None:
    users = table("users", "tenant:int8! id:int8!", key="tenant id")
    orders = replace(
        table("orders", "id:int8! tenant:int8! buyer_id:int8! seller_id:int8!"),
        foreign_keys=tuple(
            ForeignKey(("tenant", own), name("users"), ("tenant", "id")) for own in ("buyer_id", "seller_id")
        ),
        indexed=(("id",), ("tenant", "buyer_id"), ("tenant", "seller_id")),
    )
    for root, found in (("users", "orders"), ("orders", "users")):
        _, spec = suggested(root, users, orders)
        assert set(joins(spec.fields)) == {f"{found}_by_buyer", f"{found}_by_seller"}


@pytest.mark.parametrize(("most", "kind"), [(1000, JoinField), (1001, AggregateField)])
def test_very_many_rows_are_counted(most: int, kind: type) -> None:
    hints = Hints(fanouts={(name("orders"), "user_id"): Fanout(3, most)})
    _, spec = suggested("users", USERS, ORDERS, hints=hints)
    assert isinstance(spec.fields[-1], kind)


@pytest.mark.parametrize(
    ("title", "file"),
    [("users", "users"), ("Users", "Users"), ("../etc/x", "etc_x"), ("a\nb", "a_b"), ("日本", "documents")],
)
def test_a_schema_file_is_one_of_its_folder(title: str, file: str) -> None:
    assert suggest_file(name(title)) == f"{file}.schema.yml"
