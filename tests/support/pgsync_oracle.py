"""The documents that PGSync's documentation promises for a schema.json, worked out row by row.

Nothing is shared with the conversion or with assembly: plain `SELECT *`, the foreign keys that the catalog
has, and Python. `_meta` is left out, a list without rows is [], and a row is once in a list.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.postgres.connection import connect

Json = dict[str, Any]
Table = tuple[str, str]
Pairs = list[tuple[str, str]]
"""Columns of two tables that are equal where their rows belong together."""

_TABLES = """
SELECT n.nspname, c.relname, c.relkind = 'v',
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
                 WHERE i.indrelid = c.oid AND i.indisprimary), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_FOREIGN_KEYS = """
SELECT n.nspname, c.relname, f.nspname, t.relname,
       (SELECT array_agg(a.attname::text ORDER BY k.place) FROM unnest(conkey) WITH ORDINALITY AS k (n, place)
        JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = k.n),
       (SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(confkey) WITH ORDINALITY AS k (n, place)
        JOIN pg_attribute a ON a.attrelid = confrelid AND a.attnum = k.n)
FROM pg_constraint JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class t ON t.oid = confrelid JOIN pg_namespace f ON f.oid = t.relnamespace
WHERE contype = 'f' ORDER BY c.relname, conkey
"""


@dataclass(frozen=True)
class Town:
    """The rows of all tables as PostgreSQL's JSON, their keys by name, and what refers to what."""

    rows: Mapping[Table, Sequence[Json]]
    keys: Mapping[Table, Sequence[str]]
    references: Sequence[tuple[Table, Table, Pairs]]

    @classmethod
    def read(cls, url: str) -> Town:
        with connect(url) as connection:
            connection.execute(b"SET TimeZone = 'UTC'")
            known = connection.execute(_TABLES.encode()).fetchall()
            rows = {
                (schema, name): [
                    row
                    for (row,) in connection.execute(
                        f'SELECT to_jsonb(t) FROM "{schema}"."{name}" t'.encode()
                    )
                ]
                for schema, name, _, _ in known
            }
            links = connection.execute(_FOREIGN_KEYS.encode()).fetchall()
        return cls(
            rows,
            {(schema, name): key for schema, name, _, key in known},
            [((s, t), (fs, ft), list(zip(own, far, strict=True))) for s, t, fs, ft, own, far in links],
        )

    def pairs(self, above: Table, below: Table) -> list[Pairs]:
        """Pairs of a column of `above` and one of `below`, for each foreign key between them."""
        down = [
            [(far, own) for own, far in pairs]
            for one, other, pairs in self.references
            if (one, other) == (below, above)
        ]
        up = [pairs for one, other, pairs in self.references if (one, other) == (above, below)]
        return down or up

    def met(self, row: Json, table: Table, pairs: Pairs) -> list[Json]:
        return [
            other
            for other in self.rows[table]
            if all(row[ours] is not None and row[ours] == other[theirs] for ours, theirs in pairs)
        ]


def documents(index: Json, town: Town) -> dict[str, Json]:
    """The documents of one entry of the file, by id."""
    index = copy.deepcopy(index)
    root = index["nodes"]
    table = _table(root, "public")
    key = town.keys[table] or root["primary_key"]
    found = {}
    for row in town.rows[table]:
        document = _shown(root, row, town)
        _change(document, root)
        found[":".join(str(row[name]) for name in key)] = document
    return found


def _table(node: Json, schema: str) -> Table:
    return node.get("schema", schema), node["table"]


def _shown(node: Json, row: Json, town: Town) -> Json:
    table = _table(node, "public")
    found: Json = {}
    for column in node.get("columns") or row:
        parts = re.split(r"(->>|->|#>>|#>)", column)
        found["_".join(re.sub("[{}]", "", part) for part in parts[::2])] = _follow(row, parts)
    for child in node.get("children", []):
        found[child.get("label", child["table"])] = _related(child, row, table, town)
    return found


def _follow(row: Json, parts: Sequence[str]) -> Any:
    value = row[parts[0]]
    for operator, operand in zip(parts[1::2], parts[2::2], strict=True):
        for step in operand.strip("{}").split(",") if "#" in operator else [operand]:
            if isinstance(value, list):
                value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        if operator.endswith(">>") and value is not None and not isinstance(value, str):
            value = json.dumps(value)
    return value


def _related(child: Json, row: Json, above: Table, town: Town) -> Any:
    relationship, table = child["relationship"], _table(child, "public")
    through = relationship.get("through_tables")
    if through:
        schema, _, name = through[0].rpartition(".")
        middle = (schema or table[0], name)
        here, *rest = town.pairs(above, middle)
        there = rest[0] if above == table else town.pairs(table, middle)[0]
        lines = town.met(row, middle, here)
        rows = [
            other
            for other in town.rows[table]
            if any(line in town.met(other, middle, there) for line in lines)
        ]
    else:
        keys = relationship.get("foreign_key")
        pairs = list(zip(keys["parent"], keys["child"], strict=True)) if keys else town.pairs(above, table)[0]
        rows = town.met(row, table, pairs)
    if relationship["variant"] == "scalar":
        found: list[Any] = [other[child["columns"][0]] for other in rows]
    else:
        found = [_shown(child, other, town) for other in rows]
    if relationship["type"] == "one_to_many" or through:
        return found
    return found[0] if found else None


def _change(value: Any, node: Json) -> None:
    """Replace, rename and concat, from the leaves up; a scalar's values are replaced in place."""
    transform = node.get("transform", {})
    for row in value if isinstance(value, list) else [value]:
        if not isinstance(row, dict):
            continue
        for child in node.get("children", []):
            label = child.get("label", child["table"])
            if child["relationship"]["variant"] == "scalar":
                for pairs in child.get("transform", {}).get("replace", {}).values():
                    row[label] = _replaced(row[label], pairs)
            else:
                _change(row[label], child)
        for key, pairs in transform.get("replace", {}).items():
            row[key] = _replaced(row[key], pairs)
        renamed = {transform.get("rename", {}).get(key, key): item for key, item in row.items()}
        row.clear()
        row.update(renamed)
        for concat in _listed(transform.get("concat", [])):
            parts = (row.get(name, name) for name in concat["columns"])
            row[concat["destination"]] = concat.get("delimiter", "").join(str(part) for part in parts if part)


def _listed(value: Any) -> Iterator[Json]:
    yield from value if isinstance(value, list) else [value]


def _replaced(value: Any, pairs: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_replaced(item, pairs) for item in value]
    for old, new in pairs.items():
        value = value.replace(old, new) if isinstance(value, str) else value
    return value
