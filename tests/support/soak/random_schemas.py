"""Make random schema files over a random database.

The file is built as YAML's own values and written out as text: the product's loader reads it like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from headrace.model.names import TableName
from headrace.postgres.quoting import identifier, literal
from support.soak.random_database import Column, Database, Reference, Table

_DEEPEST = 4
_MOST_JOINS = 9
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_DEFAULTS = {"keyword": "none", "text": "none", "long": 0, "integer": 0, "decimal": 0.5, "boolean": False}

Node = dict[str, Any]


def written(name: str) -> str:
    """A table's or column's name as a schema file writes it."""
    return name if _PLAIN.fullmatch(name) else identifier(name)


def _several(names: Sequence[str]) -> str | list[str]:
    return written(names[0]) if len(names) == 1 else [written(name) for name in names]


def declare(random: Random, database: Database) -> tuple[dict[str, Node], frozenset[TableName]]:
    """One to three indexes by name, and the tables that they read; one table may be the root of several."""
    declarations = [_Declaration(random, database) for _ in range(random.choice((1, 1, 2, 3)))]
    schemas = {f"index_{number}": one.index() for number, one in enumerate(declarations)}
    return schemas, frozenset[TableName]().union(*(one.read for one in declarations))


def text_of(schema: Node) -> str:
    """The schema file."""
    return yaml.safe_dump(schema, allow_unicode=True, sort_keys=False, width=110)


def _alike(column: Column, table: Table) -> list[Column]:
    """The columns of `table` that `column` can be compared with, as a join does."""
    return [one for one in table.columns if one.kind == column.kind and one.type.compared]


def _pairs(child: Table, parent: Table) -> list[tuple[Column, Column]]:
    return [(theirs, ours) for theirs in child.columns for ours in _alike(theirs, parent)]


@dataclass(frozen=True, slots=True)
class _At:
    """A row of which fields are declared: its table, how deep it is, and the keys that are taken."""

    table: Table
    depth: int
    schema: str


class _Declaration:
    """Builds one index.

    Attributes:
        read: the tables in it.
    """

    def __init__(self, random: Random, database: Database) -> None:
        self.read: set[TableName] = set()
        self._random = random
        self._database = database
        self._joins = 0

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def index(self) -> Node:
        """The whole file."""
        table = self._random.choice(self._database.tables)
        self.read.add(table.name)
        schema: Node = {"version": 1, "table": written(table.name.name)}
        if table.name.schema != "public" or self._chance(0.3):
            schema["schema"] = written(table.name.schema)
        if not table.primary or len(table.key) > 1 or self._chance(0.6):
            schema["primary_key"] = _several(table.key)
        if self._chance(0.2):
            schema["filters"] = self._filters(table)
        if self._chance(0.2):
            schema["soft_delete"] = self._soft_delete(table)
        schema["fields"] = self._fields(_At(table, 0, table.name.schema))
        return schema

    def _soft_delete(self, table: Table) -> Node:
        markers = [one for one in table.shown if not one.not_null] or list(table.columns)
        booleans = [one for one in markers if one.kind == "bool"]
        found: Node = {"column": written(self._random.choice(booleans or markers).name)}
        if not booleans or self._chance(0.3):
            found["when"] = self._filters(table)
        return found

    # fields

    def _fields(self, at: _At) -> list[Node]:
        found: list[Node] = []
        taken: set[str] = set()
        for node in self._some(at):
            tag = next(iter(node))
            if node[tag] not in taken:
                taken.add(node[tag])
                found.append(node)
        return found or [{"constant": "empty", "value": None}]

    def _some(self, at: _At) -> Iterator[Node]:
        for column in at.table.columns:
            if self._chance(0.6):
                yield self._scalar(column)
        latitudes = [one for one in at.table.columns if one.kind in ("latitude", "amount", "int")]
        if len(latitudes) > 1 and self._chance(0.3):
            yield {"geo": "place", "lat": written(latitudes[0].name), "lon": written(latitudes[1].name)}
        if self._chance(0.1):
            yield {"constant": "fixed", "value": self._random.choice(["x", 1, 1.5, True, None])}
        yield from self._related(at)
        if at.depth < _DEEPEST and self._chance(0.15):
            yield {"object": "inside", "fields": self._fields(_At(at.table, at.depth + 1, at.schema))}

    def _scalar(self, column: Column) -> Node:
        tag = self._random.choice(column.type.tags)
        plain = _PLAIN.fullmatch(column.name) is not None and self._chance(0.5)
        key = column.name if plain else "f_" + re.sub(r"\W", "_", column.name)
        node: Node = {tag: key}
        if not plain:
            node["column"] = written(column.name)
        if tag == "json" and self._chance(0.3):
            return {"map": key, "column": written(column.name), "dynamic": True}
        if tag == "custom":
            node |= {"postgres": [column.type.sql], "opensearch": "integer"}
        if tag == "enum" and self._chance(0.5):
            node["variants"] = list(column.type.pool)
        if column.type.is_text and self._chance(0.25):
            node["transforms"] = self._random.choice((["lowercase"], ["trim"], ["trim", "lowercase"]))
        if tag in _DEFAULTS and self._chance(0.2):
            node["default"] = _DEFAULTS[tag]
        return node

    # related rows

    def _related(self, at: _At) -> Iterator[Node]:
        """Joins and aggregates over the references of the table."""
        eager = 0.75 if at.depth < 2 else 0.4
        for reference in at.table.references:
            if self._chance(eager) and self._room(at):
                yield self._join("belongs_to", at, self._database[reference.target], reference)
        for other, reference in self._database.pointing_at(at.table.name):
            if self._chance(eager) and self._room(at):
                kind = "has_many" if self._chance(0.75) else "has_one"
                yield self._join(kind, at, other, reference)
            if self._chance(0.35):
                yield self._aggregate(at, other, foreign_key=_several(reference.columns))
        for junction, here, there in self._database.junctions_from(at.table.name):
            through = self._through(at, junction, here, there)
            other = self._database[there.target]
            if self._chance(eager) and self._room(at):
                yield self._join("many_to_many", at, other, there, through)
            if self._chance(0.35):
                yield self._aggregate(at, other, through=through)

    def _room(self, at: _At) -> bool:
        if at.depth >= _DEEPEST or self._joins >= _MOST_JOINS:
            return False
        self._joins += 1
        return True

    def _key(self, word: str, reference: Reference) -> str:
        return re.sub(r"\W", "_", f"{word}_{reference.columns[0]}_{self._joins}")

    def _named(self, at: _At, table: TableName) -> Node:
        """`table` and, where it is not the one that is taken for granted, `schema`."""
        self.read.add(table)
        same = table.schema == at.schema
        return {"table": written(table.name)} | ({} if same else {"schema": written(table.schema)})

    def _through(self, at: _At, junction: Table, here: Reference, there: Reference) -> Node:
        keys = here.columns[0], there.columns[0]
        through = {
            **self._named(at, junction.name),
            "left_key": written(keys[0]),
            "right_key": written(keys[1]),
        }
        ends = (at.table, "left_references"), (self._database[there.target], "right_references")
        for key, (table, word) in zip(keys, ends, strict=True):
            alike = _alike(junction.column(key), table)
            if alike and self._chance(0.15):
                through[word] = written(self._random.choice(alike).name)
        if self._chance(0.2):
            through["filters"] = self._filters(junction)
        return through

    def _join(
        self, kind: str, at: _At, other: Table, reference: Reference, through: Node | None = None
    ) -> Node:
        node: Node = {kind: self._key(kind, reference), **self._named(at, other.name)}
        node["primary_key"] = _several(other.key)
        if through is not None:
            node["through"] = through
        elif kind != "belongs_to" and (pairs := _pairs(other, at.table)) and self._chance(0.15):
            theirs, ours = self._random.choice(pairs)
            node |= {"foreign_key": written(theirs.name), "references": written(ours.name)}
        else:
            node["column" if kind == "belongs_to" else "foreign_key"] = _several(reference.columns)
        if self._chance(0.3):
            node["filters"] = self._filters(other)
        if kind != "belongs_to" and self._chance(0.5):
            node["order_by"] = self._order(other)
        if kind in ("has_many", "many_to_many") and self._chance(0.35):
            node["limit"] = self._random.randint(1, 3)
        if self._chance(0.15):
            return node | {
                "scalar": True,
                "fields": [self._scalar(self._random.choice(other.shown or other.columns))],
            }
        node["fields"] = self._fields(_At(other, at.depth + 1, other.name.schema))
        return node

    def _order(self, table: Table) -> list[Node]:
        columns = [one for one in table.columns if one.type.compared]
        chosen = self._random.sample(columns, min(len(columns), self._random.randint(1, 2)))
        return [
            {"column": written(one.name)}
            | self._random.choice(({"direction": "desc"}, {"direction": "asc"}, {}))
            for one in chosen
        ]

    def _aggregate(self, at: _At, other: Table, **how: Any) -> Node:
        self._joins += 1
        key = f"agg_{self._joins}"
        node = self._reduced(other, key) | self._named(at, other.name) | how
        if not other.primary or "through" in how or next(iter(node)) == "ids":
            node["primary_key"] = _several(other.key)
        if self._chance(0.4):
            node["filters"] = self._filters(other)
        return node

    def _reduced(self, table: Table, key: str) -> Node:
        choices: list[Node] = [{"count": key}]
        if len(table.key) == 1:
            choices.append({"ids": key, "element_type": "keyword"})
        for one in table.columns:
            column = {"column": written(one.name)}
            if one.type.summed:
                choices += [{"sum": key, **column, "value_type": one.type.summed}, {"avg": key, **column}]
            if one.type.reduced:
                choices += [{op: key, **column, "value_type": one.type.reduced} for op in ("min", "max")]
        return dict(self._random.choice(choices))

    # filters

    def _filters(self, table: Table) -> list[Node]:
        return [self._filter(table) for _ in range(self._random.choice((1, 1, 2)))]

    def _filter(self, table: Table) -> Node:
        column = self._random.choice(table.columns)
        kind, random = column.type, self._random
        ops = ["is_null", "is_not_null", "is_not_null"]
        if kind.compared:
            ops += ["eq", "neq", "neq", "lt", "lte", "gt", "gte", "in", "not_in", "between"]
            ops += ["like", "ilike"] if kind.is_text else []
            ops += ["raw"] if kind.is_text and column.kind != "citext" else []
        op = random.choice(ops)
        if op == "raw":
            return {"raw": self._raw(table, column)}
        node: Node = {"column": written(column.name), "op": op}
        if op in ("like", "ilike"):
            node["value"] = random.choice(("%a%", "_", "B%", "%o%", "50\\%", "%'%"))
        elif op in ("in", "not_in", "between"):
            node["value"] = [kind.operand(random) for _ in range(2)]
        elif op not in ("is_null", "is_not_null"):
            node["value"] = kind.operand(random)
        return node

    def _raw(self, table: Table, column: Column) -> str:
        """A condition of one or two parts, the column with or without its table's name."""
        name = identifier(column.name)
        if self._chance(0.3):
            name = f"{identifier(table.name.name)}.{name}"
        value = literal(str(column.type.operand(self._random))).strip()
        if "\\" in value:
            value = "'a'"
        first = self._random.choice(
            (f"{name} <> {value}", f"NOT ({name} = {value})", f"lower({name}) = 'b'", f"length({name}) > 1")
        )
        return first + self._random.choice(("", f" OR {name} IS NULL", f" AND {name} IS NOT NULL"))
