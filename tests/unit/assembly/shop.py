"""A catalog and specs without a database."""

from pathlib import Path

from headrace.catalog.table import Catalog, Column, Table, UniqueKey
from headrace.errors import Place
from headrace.model.names import TableName
from headrace.schema.tree import Filter, Scalar

PLACE = Place(Path("shop.schema.yml"), 3, 5)

_TYPES = {
    "int8": ("bigint", "int8", "pg_catalog", "N"),
    "int4": ("integer", "int4", "pg_catalog", "N"),
    "text": ("text", "text", "pg_catalog", "S"),
    "varchar": ("character varying(3)", "varchar", "pg_catalog", "S"),
    "numeric": ("numeric(10,2)", "numeric", "pg_catalog", "N"),
    "bool": ("boolean", "bool", "pg_catalog", "B"),
    "json": ("json", "json", "pg_catalog", "U"),
    "timestamptz": ("timestamp with time zone", "timestamptz", "pg_catalog", "D"),
    "citext": ("public.citext", "citext", "public", "S"),
}


def column(name: str, kind: str, *, not_null: bool = False) -> Column:
    type_, base, schema, category = _TYPES[kind]
    return Column(name, type_, base, schema, category, not_null=not_null, generated=False)


def table(name: str, columns: str, *key: str, partitions: tuple[TableName, ...] = ()) -> Table:
    named = [one.split(":") for one in columns.split()]
    return Table(
        name=TableName("public", name),
        oid=1,
        kind="p" if partitions else "r",
        columns=tuple(column(one, kind, not_null=one in key) for one, kind in named),
        unique_keys=(UniqueKey(f"{name}_pkey", key, primary=True, not_null=True),),
        foreign_keys=(),
        indexed=(key,),
        replica_identity="default",
        identity_columns=key,
        row_estimate=0,
        partitions=partitions,
    )


def catalog(*tables: Table) -> Catalog:
    return Catalog({one.name: one for one in tables})


SHOP = catalog(
    table("users", "id:int8 name:text email:citext deleted_at:timestamptz boss_id:int8", "id"),
    table("orders", "id:int8 user_id:int8 total:numeric placed_at:timestamptz open:bool", "id"),
    table(
        "items",
        "order_id:int8 pos:int4 product_sku:varchar",
        "order_id",
        "pos",
        partitions=(TableName("public", "items_1"),),
    ),
    table("products", "sku:varchar name:text extra:json", "sku"),
    table("tags", "name:citext rank:int4", "name"),
    table("user_tags", "id:int8 user_id:int8 tag_name:citext", "id"),
)


def name(table_name: str) -> TableName:
    return TableName("public", table_name)


def condition(op: str, column_name: str | None = None, *values: Scalar, raw: str | None = None) -> Filter:
    return Filter(op, column_name, values, raw, PLACE)  # type: ignore[arg-type]
