"""Write a first schema file for a table.

Fields come from the columns' types, joins from the foreign keys, one level deep. The text loads and binds
without findings; a comment names what is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.catalog.table import Catalog, Column, ForeignKey, Table
from headrace.catalog.type_check import fitting_tags
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS_OF_YAML = frozenset({"null", "true", "false"})
_LONGEST_KEY = 63
_JUNCTION = 2


def suggest_schema(catalog: Catalog, root: TableName) -> str:
    """Return a schema file for documents of `root`, as YAML text.

    Args:
        catalog: every table that may be joined (`list_tables`).
        root: the table whose rows become documents.

    Raises:
        HeadraceError: USAGE, where `root` is not in the catalog or has no primary key.
    """
    if root not in catalog:
        known = [str(name) for name in catalog.tables]
        raise HeadraceError(Kind.USAGE, f"the database has no table {root}", meant(str(root), known))
    table = catalog[root]
    if not table.primary_key:
        raise HeadraceError(
            Kind.USAGE, f"the table {root} has no primary key", "Add one: a document's id is its row's key."
        )
    lines = [
        f"# Documents of {_comment(str(root))}: one for each row. Take out what a search does not need.",
        "version: 1",
        f"table: {_name(root.name)}",
        *_schema_line(root, "public"),
        f"primary_key: {_names(table.primary_key)}",
        "",
        "fields:",
    ]
    keys: set[str] = set()
    lines += _indented(_columns(table, keys))
    for block in (*_parents(catalog, table, keys), *_children(catalog, table, keys)):
        lines += ["", *_indented(block)]
    return "\n".join(lines) + "\n"


def suggest_name(root: TableName) -> str:
    """Return a name for an index of `root`."""
    return _unused_key(root.name.lower(), set()).lstrip("_") or "documents"


def _columns(table: Table, taken: set[str]) -> Iterator[str]:
    """Yield the table's own columns, one field each."""
    for column in table.columns:
        tag = _tag(table, column)
        if tag is None:
            yield f"# {_comment(column.name)} ({_comment(column.type)}): no field type reads it"
            continue
        key = _unused_key(column.name, taken)
        if tag == "json":
            yield "# takes any JSON and is not searched; docs/schema.md has the forms that are"
        yield f"- {tag}: {_yaml(key)}"
        if key != column.name or not _PLAIN.fullmatch(column.name):
            yield f"  column: {_name(column.name)}"
        if column.not_null:
            yield "  required: true"
        if tag == "json":
            yield "  options: {enabled: false}"


def _tag(table: Table, column: Column) -> str | None:
    """Return the most useful type key: `keyword` for codes and references, `text` for prose."""
    tags = fitting_tags(column)
    if not tags:
        return None
    if tags[0] != "keyword":
        return tags[0]
    if column.category == "E":
        return "enum"
    exact = {name for key in table.unique_keys for name in key.columns}
    exact |= {name for key in table.foreign_keys for name in key.columns}
    return "text" if column.base_type == "text" and column.name not in exact else "keyword"


def _parents(catalog: Catalog, table: Table, taken: set[str]) -> Iterator[list[str]]:
    """Yield the joins to rows that this table's foreign keys refer to."""
    for key in table.foreign_keys:
        target = catalog.tables.get(key.target)
        if target is None or set(key.target_columns) != set(target.primary_key):
            columns = _comment(", ".join(key.columns))
            yield [f"# ({columns}) points at {_comment(str(key.target))}, but not at its key"]
            continue
        name = key.columns[0].removesuffix("_id") if len(key.columns) == 1 else key.target.name
        name = name if name != key.columns[0] else key.target.name
        pairs = dict(zip(key.target_columns, key.columns, strict=True))
        yield [
            f"# the row of {_comment(str(key.target))} that this one points at",
            f"- belongs_to: {_yaml(_unused_key(name, taken))}",
            *_target(table, target),
            f"  column: {_names([pairs[column] for column in target.primary_key])}",
            *_projection(target),
        ]


def _children(catalog: Catalog, table: Table, taken: set[str]) -> Iterator[list[str]]:
    """Yield the joins to rows of other tables that refer to this one."""
    for child in sorted(catalog.tables.values(), key=lambda candidate: candidate.name):
        for key in child.foreign_keys:
            if key.target != table.name or set(key.target_columns) != set(table.primary_key):
                continue
            other = _other_side(child, key)
            target = catalog.tables.get(other.target) if other else None
            if other and target and other.target_columns == target.primary_key:
                yield _many_to_many(table, child, (key, other), target, taken)
            elif not child.primary_key:
                yield [f"# {_comment(str(child.name))} points here, and has no primary key to join it by"]
            else:
                yield _has_join(table, child, key, taken)


def _has_join(table: Table, child: Table, key: ForeignKey, taken: set[str]) -> list[str]:
    pairs = dict(zip(key.target_columns, key.columns, strict=True))
    single = any(set(unique.columns) == set(key.columns) for unique in child.unique_keys)
    verb, meaning = ("has_one", "the row") if single else ("has_many", "the rows")
    return [
        f"# {meaning} of {_comment(str(child.name))} that point here",
        f"- {verb}: {_yaml(_unused_key(child.name.name, taken))}",
        *_target(table, child),
        f"  foreign_key: {_names([pairs[column] for column in table.primary_key])}",
        *_projection(child),
    ]


def _many_to_many(
    table: Table, junction: Table, sides: tuple[ForeignKey, ForeignKey], target: Table, taken: set[str]
) -> list[str]:
    left, right = sides
    return [
        f"# the rows of {_comment(str(target.name))} that {_comment(str(junction.name))} links to this one",
        f"- many_to_many: {_yaml(_unused_key(target.name.name, taken))}",
        *_target(table, target),
        "  through:",
        f"    table: {_name(junction.name.name)}",
        *_indented(_schema_line(junction.name, table.name.schema), 4),
        f"    left_key: {_name(left.columns[0])}",
        f"    right_key: {_name(right.columns[0])}",
        *_projection(target),
    ]


def _other_side(table: Table, key: ForeignKey) -> ForeignKey | None:
    """Return the other foreign key of a junction, which has at most a surrogate key besides the two."""
    keys = [foreign_key for foreign_key in table.foreign_keys if len(foreign_key.columns) == 1]
    linked = {foreign_key.columns[0] for foreign_key in keys}
    surrogate = set(table.primary_key) if len(table.primary_key) == 1 else set()
    rest = {column.name for column in table.columns} - linked - surrogate
    if len(keys) != _JUNCTION or len(linked) != _JUNCTION or rest:
        return None
    return next(foreign_key for foreign_key in keys if foreign_key != key)


def _target(parent: Table, table: Table) -> list[str]:
    return [
        f"  table: {_name(table.name.name)}",
        *_indented(_schema_line(table.name, parent.name.schema)),
        f"  primary_key: {_names(table.primary_key)}",
    ]


def _projection(table: Table) -> list[str]:
    fields = list(_columns(table, set()))
    if not any(line.startswith("- ") for line in fields):
        return [*_indented(fields), "  fields: []"]
    return ["  fields:", *_indented(fields, 4)]


def _schema_line(name: TableName, default: str) -> list[str]:
    return [] if name.schema == default else [f"schema: {_name(name.schema)}"]


def _indented(lines: Iterable[str], by: int = 2) -> list[str]:
    return [" " * by + line for line in lines]


def _unused_key(name: str, taken: set[str]) -> str:
    """Return an unused document key like `name`, and add it to `taken`."""
    base = re.sub(r"[^A-Za-z0-9_]+", "_", name)[: _LONGEST_KEY - 4] or "field"
    base = base if _KEY.fullmatch(base) else f"_{base}"
    key, number = base, 1
    while key in taken:
        number += 1
        key = f"{base}_{number}"
    taken.add(key)
    return key


def _names(names: Sequence[str]) -> str:
    return _name(names[0]) if len(names) == 1 else f"[{', '.join(_name(name) for name in names)}]"


def _name(name: str) -> str:
    """Return a PostgreSQL name as the schema language writes it, in YAML."""
    if _PLAIN.fullmatch(name):
        return _yaml(name)
    return json.dumps('"' + name.replace('"', '""') + '"', ensure_ascii=False)


def _yaml(word: str) -> str:
    return f'"{word}"' if word.lower() in _WORDS_OF_YAML else word


def _comment(text: str) -> str:
    return " ".join(text.split())
