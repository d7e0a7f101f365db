"""Tables with everything that makes resolution hard, their indexes, and a naive evaluation of these.

Self-references, two references to one table, a junction with a key of its own, composite keys, a partitioned
table, names that need quotes, and no foreign-key constraint that would keep anything in order.
"""

from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from headrace.catalog import read_catalog
from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

TABLES = (
    """CREATE TABLE person (id int PRIMARY KEY, name text NOT NULL, boss_id int, mentor_id int,
                             left_on date)""",
    "CREATE TABLE badge (id int PRIMARY KEY, person_id int, points int, kind text)",
    "CREATE TABLE tag (code text PRIMARY KEY, label text)",
    "CREATE TABLE tagging (id int PRIMARY KEY, person_id int, tag_code text)",
    """CREATE TABLE "Order" (shop text, "No" int, person_id int, "select" text, PRIMARY KEY (shop, "No"))""",
    """CREATE TABLE line (shop text, "orderNo" int, pos int, qty numeric, tag_code text,
                           PRIMARY KEY (shop, "orderNo", pos)) PARTITION BY LIST (shop)""",
    "CREATE TABLE line_a PARTITION OF line FOR VALUES IN ('a:%')",
    "CREATE TABLE line_rest PARTITION OF line DEFAULT",
)
KEYS = {
    "person": ("id",),
    "badge": ("id",),
    "tag": ("code",),
    "tagging": ("id",),
    "Order": ("shop", "No"),
    "line": ("shop", "orderNo", "pos"),
}

PEOPLE = """
version: 1
table: person
primary_key: id
soft_delete: { column: left_on }
filters: [{ column: name, op: neq, value: nobody }]
fields:
  - integer: id
  - keyword: name
  - belongs_to: boss
    table: person
    column: boss_id
    primary_key: id
    fields:
      - keyword: name
      - belongs_to: boss
        table: person
        column: boss_id
        primary_key: id
        fields: [{ keyword: name }]
  - belongs_to: mentor
    table: person
    column: mentor_id
    primary_key: id
    fields: [{ keyword: name }]
  - has_many: reports
    table: person
    foreign_key: boss_id
    primary_key: id
    order_by: [{ column: name, direction: desc }]
    fields:
      - integer: id
      - has_many: badges
        table: badge
        foreign_key: person_id
        primary_key: id
        limit: 2
        order_by: [{ column: points, direction: desc }]
        filters: [{ column: kind, op: is_not_null }]
        fields: [{ integer: points }]
  - has_one: badge
    table: badge
    foreign_key: person_id
    primary_key: id
    order_by: [{ column: points, direction: asc }]
    fields: [{ integer: id }]
  - many_to_many: tags
    table: tag
    primary_key: code
    through: { table: tagging, left_key: person_id, right_key: tag_code }
    fields: [{ keyword: label }]
  - has_many: orders
    table: '"Order"'
    foreign_key: person_id
    primary_key: [shop, '"No"']
    fields:
      - keyword: shop
      - object: more
        fields:
          - integer: "no"
            column: '"No"'
          - keyword: select
          - has_many: lines
            table: line
            foreign_key: [shop, '"orderNo"']
            primary_key: [shop, '"orderNo"', pos]
            fields:
              - decimal: qty
              - belongs_to: tag
                table: tag
                column: tag_code
                primary_key: code
                fields: [{ keyword: label }]
  - sum: points
    table: badge
    column: points
    value_type: long
    foreign_key: person_id
  - count: mentees
    table: person
    foreign_key: mentor_id
    filters: [{ raw: "left_on IS NULL AND person.name <> 'nobody'" }]
  - count: tagCount
    table: tag
    through: { table: tagging, left_key: person_id, right_key: tag_code }
  - ids: reportIds
    element_type: integer
    table: person
    foreign_key: boss_id
"""

ORDERS = """
version: 1
table: '"Order"'
primary_key: [shop, '"No"']
fields:
  - keyword: select
  - belongs_to: person
    table: person
    column: person_id
    primary_key: id
    fields:
      - keyword: name
      - many_to_many: tags
        table: tag
        primary_key: code
        through: { table: tagging, left_key: person_id, right_key: tag_code }
        fields: [{ keyword: code }]
  - sum: qty
    table: line
    column: qty
    value_type: decimal
    foreign_key: [shop, '"orderNo"']
  - avg: mean
    table: line
    column: qty
    foreign_key: [shop, '"orderNo"']
"""


def load(session: ReadSession, folder: Path) -> tuple[list[IndexSpec], Catalog]:
    specs = []
    for name, text in (("people", PEOPLE), ("orders", ORDERS)):
        path = folder / f"{name}.schema.yml"
        path.write_text(text)
        specs.append(load_schema(path, name))
    tables = frozenset[TableName]().union(*(spec.tables() for spec in specs))
    return specs, read_catalog(session, tables)


Row = dict[str, Any]


def rows(connection: psycopg.Connection) -> dict[str, list[Row]]:
    """Every row of every table."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return {name: cursor.execute(f'SELECT * FROM "{name}"').fetchall() for name in KEYS}


def evaluate(tables: dict[str, list[Row]]) -> dict[str, dict[str, Row]]:
    """What the two indexes must hold, by id: plain loops over plain rows."""
    people = {
        str(row["id"]): _person(tables, row)
        for row in tables["person"]
        if row["left_on"] is None and row["name"] != "nobody"
    }
    orders = {f"{_escape(row['shop'])}:{row['No']}": _order(tables, row) for row in tables["Order"]}
    return {"people": people, "orders": orders}


def _escape(text: object) -> str:
    return str(text).replace("%", "%25").replace(":", "%3A")


def _where(rows: list[Row], **values: object) -> list[Row]:
    return [row for row in rows if all(row[key] == value is not None for key, value in values.items())]


def _tags(tables: dict[str, list[Row]], person: object) -> list[Row]:
    codes = {row["tag_code"] for row in _where(tables["tagging"], person_id=person)}
    return sorted((row for row in tables["tag"] if row["code"] in codes), key=lambda row: str(row["code"]))


def _person(tables: dict[str, list[Row]], row: Row) -> Row:
    def reference(column: str, of: Row) -> Row | None:
        return next(iter(_where(tables["person"], id=of[column])), None)

    boss, mentor = reference("boss_id", row), reference("mentor_id", row)
    top = None if boss is None else reference("boss_id", boss)
    reports = sorted(_where(tables["person"], boss_id=row["id"]), key=lambda one: one["id"])
    badges = sorted(_where(tables["badge"], person_id=row["id"]), key=lambda one: one["id"])
    with_points = [one["points"] for one in badges if one["points"] is not None]
    first = sorted(badges, key=lambda one: (one["points"] is None, one["points"]))
    mentees = _where(tables["person"], mentor_id=row["id"])
    return {
        "id": row["id"],
        "name": row["name"],
        "boss": boss and {"name": boss["name"], "boss": top and {"name": top["name"]}},
        "mentor": mentor and {"name": mentor["name"]},
        "reports": [
            {"id": one["id"], "badges": [{"points": value} for value in _best(tables, one["id"])]}
            for one in sorted(reports, key=lambda one: one["name"], reverse=True)
        ],
        "badge": {"id": first[0]["id"]} if first else None,
        "tags": [{"label": tag["label"]} for tag in _tags(tables, row["id"])],
        "orders": [
            {
                "shop": order["shop"],
                "more": {"no": order["No"], "select": order["select"], "lines": _lines(tables, order)},
            }
            for order in sorted(
                _where(tables["Order"], person_id=row["id"]), key=lambda one: (one["shop"], one["No"])
            )
        ],
        "points": sum(with_points) if with_points else None,
        "mentees": len([one for one in mentees if one["left_on"] is None and one["name"] != "nobody"]),
        "tagCount": len(_tags(tables, row["id"])),
        "reportIds": [one["id"] for one in reports],
    }


def _best(tables: dict[str, list[Row]], person: object) -> list[object]:
    badges = [one for one in _where(tables["badge"], person_id=person) if one["kind"] is not None]
    ordered = sorted(badges, key=lambda one: one["id"])
    ordered.sort(key=lambda one: (one["points"] is None, one["points"] or 0), reverse=True)
    return [one["points"] for one in ordered][:2]


def _lines(tables: dict[str, list[Row]], order: Row) -> list[Row]:
    lines = _where(tables["line"], shop=order["shop"], orderNo=order["No"])
    result = []
    for line in sorted(lines, key=lambda one: one["pos"]):
        tag = next(iter(_where(tables["tag"], code=line["tag_code"])), None)
        result.append({"qty": line["qty"], "tag": tag and {"label": tag["label"]}})
    return result


def _order(tables: dict[str, list[Row]], row: Row) -> Row:
    person = next(iter(_where(tables["person"], id=row["person_id"])), None)
    lines = _where(tables["line"], shop=row["shop"], orderNo=row["No"])
    amounts = [line["qty"] for line in lines if line["qty"] is not None]
    return {
        "select": row["select"],
        "person": person
        and {"name": person["name"], "tags": [{"code": tag["code"]} for tag in _tags(tables, person["id"])]},
        "qty": sum(amounts) if amounts else None,
        "mean": float(sum(amounts) / len(amounts)) if amounts else None,
    }
