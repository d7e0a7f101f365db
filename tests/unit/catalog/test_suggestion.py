"""What a first schema file takes of tables, from their names, keys, types and comments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.catalog import Catalog, Column, ForeignKey, Table, UniqueKey, suggest_schema
from headrace.catalog.binding import bind, findings
from headrace.catalog.checks import Fanout
from headrace.catalog.hints import Hints
from headrace.catalog.relations import find_relations
from headrace.catalog.suggestion import suggest_file
from headrace.errors import HeadraceError
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


def linked(child: Table, target: str, *pairs: str) -> Table:
    """Give a table a foreign key: its columns and the target's like `ucode=code`."""
    own, referred = zip(*(pair.split("=") for pair in pairs), strict=True)
    return replace(child, foreign_keys=(*child.foreign_keys, ForeignKey(own, name(target), referred)))


def accepted(root: str, *tables: Table) -> tuple[str, IndexSpec]:
    """The text, and what it is read as; `check` refuses nothing in it."""
    catalog = Catalog({each.name: each for each in tables})
    text = suggest_schema(catalog, name(root))
    spec = parse_schema(source_of(Path("it.schema.yml"), text), text, "it")
    assert bind(spec, catalog) == []
    return text, spec


GENERATED = Column("user_id", "int8", "int8", "pg_catalog", "N", not_null=True, generated=True)
CODED = linked(table("o", "id:int8! ucode:text"), "users", "ucode=email")


def test_rows_that_refer_to_another_key_than_the_primary_one_are_joined_by_it() -> None:
    _, spec = accepted("users", USERS, CODED)
    assert (joins(spec.fields)["o"].foreign_key, joins(spec.fields)["o"].references) == (
        ("ucode",),
        ("email",),
    )
    _, spec = accepted("o", USERS, CODED)
    assert joins(spec.fields)["users"].primary_key == ("email",)


def test_a_junction_may_refer_to_other_keys_than_the_primary_ones() -> None:
    tags = table("tags", "tenant:int8! id:int8! name:text!", key="tenant id", unique="name")
    links = linked(table("links", "id:int8! u:text! t:text!"), "users", "u=email")
    _, spec = accepted("users", USERS, tags, linked(links, "tags", "t=name"))
    through = joins(spec.fields)["tags"].through
    assert through is not None
    assert (through.left_references, through.right_references) == ("email", "name")


def test_rows_without_a_primary_key_are_told_apart_by_another_key() -> None:
    logins = table("logins", "user_id:int8! token:text!", key="", unique="token", user_id="users")
    _, spec = accepted("users", USERS, logins)
    assert joins(spec.fields)["logins"].primary_key == ("token",)


def _unmarked(table: Table) -> Table:
    return replace(table, unique_keys=tuple(replace(key, not_null=False) for key in table.unique_keys))


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ((table("o", "user_id:int8!", key="", user_id="users"),), "it has no key"),
        ((replace(ORDERS, name=name("o"), inherited=True),), "children by INHERITS"),
        ((linked(table("o", "id:int8! user_id:numeric!"), "users", "user_id=name"),), "cannot be compared"),
        (
            (replace(table("o", "id:int8!", user_id="users"), columns=(*ORDERS.columns[:1], GENERATED)),),
            "generated",
        ),
    ],
)
def test_rows_that_cannot_be_joined_are_named_with_the_reason(tables: tuple[Table, ...], reason: str) -> None:
    text, spec = accepted("users", USERS, *tables)
    assert joins(spec.fields) == {}
    [told] = [line for line in text.splitlines() if line.startswith("  # o (user_id): ")]
    assert reason in told


def test_a_parent_that_no_key_identifies_is_named_with_the_reason() -> None:
    text, spec = accepted("o", _unmarked(USERS), CODED)
    assert joins(spec.fields) == {}
    assert "# users (ucode): (email) is no key of users: " in text


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (replace(USERS, inherited=True), "children by INHERITS"),
        (replace(USERS, unique_keys=(replace(USERS.unique_keys[0], immediate=False),)), "deferrable"),
        (table("users", "id:int8!", key=""), "no primary key"),
    ],
)
def test_a_table_whose_rows_cannot_be_documents_is_refused(root: Table, reason: str) -> None:
    with pytest.raises(HeadraceError, match=reason):
        suggest_schema(Catalog({root.name: root}), root.name)


def test_a_key_of_several_columns_makes_no_junction_of_a_table_with_two_others() -> None:
    """It was joined through one of the two others, which `check` refused."""
    users = table("users", "tenant:int8! id:int8!", key="tenant id")
    tags = table("tags", "id:int8! name:text")
    links = table("links", "id:int8! tenant:int8! user_id:int8! a:int8! b:int8!", a="tags", b="tags")
    links = linked(links, "users", "tenant=tenant", "user_id=id")
    _, spec = accepted("users", users, tags, replace(links, columns=(links.columns[0], *links.columns[3:])))
    assert spec


def test_a_table_of_which_no_column_is_taken_is_a_schema_file_too() -> None:
    text, spec = accepted("users", table("users", "api_key:text!", key="api_key"))
    assert spec.fields == ()
    assert "# api_key: looks like a secret" in text


def test_rows_that_a_file_identifies_by_another_key_are_referred_to_by_their_own() -> None:
    catalog = Catalog({each.name: each for each in (USERS, ORDERS, CODED)})
    found = {each.name: each.references for each in find_relations(catalog, USERS, ("email",))}
    assert found == {"orders": ("id",), "o": ()}


def test_a_column_with_a_key_of_the_clusters_own_is_renamed_at_the_top_alone() -> None:
    users = table("users", "id:int8! _id:int8! _source:text")
    notes = table("notes", "id:int8! user_id:int8! _id:int8", user_id="users")
    _, spec = accepted("users", users, notes)
    found = {each.key: each.column for each in spec.fields if isinstance(each, ColumnField)}
    assert found == {"id": "id", "_id_2": "_id", "_source_2": "_source"}
    assert [each.key for each in joins(spec.fields)["notes"].fields] == ["id", "_id"]
