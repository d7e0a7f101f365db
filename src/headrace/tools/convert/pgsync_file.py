"""Read a PGSync schema.json into typed values, with the line of each.

The words are those of PGSync 7.3; older spellings that it refuses (`node`, a list of `nodes`) are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from headrace.config.text_files import read_text
from headrace.errors import Kind, LocatedError, Place
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.model.units import quantity
from headrace.tools.convert.json_lines import JsonNode, parse_json
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.object_reader import ObjectReader

_INDEX = (
    *("database", "index", "nodes", "node", "plugins", "pipeline", "setting", "mapping", "mappings"),
    "routing",
)
_NODE = (
    *("table", "schema", "label", "columns", "children", "primary_key", "base_tables", "relationship"),
    "transform",
)
_RELATIONSHIP = ("type", "variant", "through_tables", "foreign_key")
_TRANSFORM = ("rename", "replace", "concat", "mapping", "move")
_TYPES = ("one_to_one", "one_to_many")
_VARIANTS = ("object", "scalar")


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """An entry of `columns`: a name, or a path into a json column (`doc->a->0`)."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Concat:
    """A text that is put together from others."""

    columns: tuple[str, ...]
    destination: str
    delimiter: str
    line: int


@dataclass(frozen=True, slots=True)
class Transforms:
    """What `transform` of a node says; `mapping` by the key in the document."""

    rename: Mapping[str, str] = field(default_factory=dict)
    replace: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    concat: tuple[Concat, ...] = ()
    mapping: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Relationship:
    """How a node's rows belong to the row above.

    Attributes:
        through: the table between them, if there is one.
        parent, child: the columns of `foreign_key`; empty where the database's foreign keys count.
    """

    to_many: bool
    scalar: bool
    line: int
    through: TableName | None = None
    parent: tuple[str, ...] = ()
    child: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A table of a document; `relationship` is None for the root."""

    table: TableName
    label: str
    line: int
    columns: tuple[ColumnEntry, ...] = ()
    primary_key: tuple[str, ...] = ()
    base_tables: tuple[TableName, ...] = ()
    relationship: Relationship | None = None
    transforms: Transforms = field(default_factory=Transforms)
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def tables(self) -> Iterator[TableName]:
        """Yield every table that this node and those below it name."""
        for node in self.walk():
            yield from (node.table, *node.base_tables)
            if node.relationship is not None and node.relationship.through is not None:
                yield node.relationship.through


@dataclass(frozen=True, slots=True)
class PgsyncIndex:
    """One entry of the file: an index and the tree of its documents.

    Attributes:
        setting, mapping: of the index, as JSON values; `mapping` is its `properties`.
        more_mapping: what `mapping` holds beside properties (`dynamic_templates`).
        lines: where `plugins`, `routing`, `setting`, … stand.
    """

    name: str
    database: str
    root: Node
    line: int
    plugins: tuple[str, ...] = ()
    pipeline: str = ""
    routing: str = ""
    setting: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    more_mapping: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)


def read_pgsync(file: Path, variables: Mapping[str, str], notes: Notes) -> tuple[PgsyncIndex, ...]:
    """Read the file `schema.json`.

    Args:
        file: the file.
        variables: what `$NAME` in a text at the top stands for.
        notes: where mistakes go; what is not concerned is read all the same.

    Raises:
        HeadraceError: CONFIG: it cannot be read, is no JSON, or holds no index.
    """
    text = read_text(file, "the schema of PGSync", Kind.CONFIG)
    root = parse_json(text, file)
    entries = [root] if isinstance(root.value, dict) else root.value
    if not isinstance(entries, list):
        entries = []
    found = [_Reader(notes, variables).index(entry) for entry in entries]
    indexes = tuple(index for index in found if index is not None)
    if not indexes:
        raise LocatedError(
            Kind.CONFIG,
            Place(file, root.line),
            "the file holds no index",
            'Write a list of objects with "database", "index" and "nodes".',
        )
    return indexes


class _Reader:
    def __init__(self, notes: Notes, variables: Mapping[str, str]) -> None:
        self._notes = notes
        self._variables = variables

    def index(self, entry: JsonNode) -> PgsyncIndex | None:
        reader = ObjectReader(entry, _INDEX, "an index", self._notes)
        database = self._substituted(reader, "database")
        name = self._substituted(reader, "index") or database
        root = self._root(reader)
        if root is None or not name:
            if not name:
                self._notes.left(entry.line, "the index has no name: it is left out", 'Add "index".')
            return None
        mapping, more = self._mapping(reader)
        return PgsyncIndex(
            name=name,
            database=database or name,
            root=root,
            line=entry.line,
            plugins=reader.texts("plugins"),
            pipeline=self._substituted(reader, "pipeline"),
            routing=self._substituted(reader, "routing"),
            setting=_plain(reader, "setting"),
            mapping=mapping,
            more_mapping=more,
            lines={key: reader.line_of(key) for key in _INDEX},
        )

    def _substituted(self, reader: ObjectReader, key: str) -> str:
        """Read a text in which `$NAME` stands for a variable, as PGSync does at the top of the file."""
        text = Template(reader.text(key)).safe_substitute(self._variables)
        if "$" in text:
            self._notes.left(
                reader.line_of(key),
                f"{key!r} holds a variable that is not set: {text}",
                "Set it, or name --env.",
            )
        return text

    def _mapping(self, reader: ObjectReader) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the properties of the index's own mapping, and what else it holds."""
        mapping, mappings = _plain(reader, "mapping"), _plain(reader, "mappings")
        if mappings:
            self._notes.differs(
                reader.line_of("mappings"),
                "PGSync puts `mappings` where no cluster looks; it is taken as the index's mapping",
            )
        found: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for part in (mappings, mapping):
            # PGSync takes both: the properties alone, and an object that holds them.
            whole = "dynamic_templates" in part or isinstance(part.get("properties"), dict)
            found |= part.get("properties", {}) if whole else part
            more |= {key: value for key, value in part.items() if key != "properties"} if whole else {}
        return found, more

    def _root(self, reader: ObjectReader) -> Node | None:
        key = "nodes" if reader.has("nodes") else "node"
        if not reader.has(key):
            self._notes.left(
                reader.line, "the index has no nodes: it is left out", 'Add "nodes": {"table": …}.'
            )
            return None
        node = reader.member(key)
        if key == "node":
            self._notes.differs(node.line, "PGSync 7.3 reads `nodes`, not `node`; it is taken for `nodes`")
        if isinstance(node.value, list):
            self._notes.differs(
                node.line, "PGSync 7.3 takes one node here, not a list; the first one is taken"
            )
            for other in node.value[1:]:
                self._notes.left(other.line, "a second root is left out", "Make it an index of its own.")
            if not node.value:
                return None
            node = node.value[0]
        return self._node(node, None)

    def _node(self, entry: JsonNode, parent: TableName | None) -> Node | None:
        reader = ObjectReader(entry, _NODE, "a node", self._notes)
        name, schema = reader.text("table"), reader.text("schema") or "public"
        if not name:
            self._notes.left(entry.line, "a node without a table is left out", 'Add "table".')
            return None
        table = TableName(schema, name)
        relationship = None
        if parent is not None:
            relationship = self._relationship(reader, table)
            if relationship is None:
                return None
        elif reader.has("relationship"):
            self._notes.differs(reader.line_of("relationship"), "the relationship of a root has no effect")
        children = [self._node(child, table) for child in reader.items("children")]
        return Node(
            table=table,
            label=reader.text("label") or name,
            line=entry.line,
            columns=tuple(ColumnEntry(node.value, node.line) for node in reader.text_nodes("columns")),
            primary_key=reader.texts("primary_key"),
            base_tables=tuple(_table_name(text, schema) for text in reader.texts("base_tables")),
            relationship=relationship,
            transforms=self._transforms(reader),
            children=tuple(filter(None, children)),
        )

    def _relationship(self, reader: ObjectReader, table: TableName) -> Relationship | None:
        node = reader.object("relationship")
        if node is None:
            self._notes.left(
                reader.line,
                f"{table} has no relationship to the table above: it is left out",
                'Add "relationship": {"type": "one_to_many", "variant": "object"}.',
            )
            return None
        inner = ObjectReader(node, _RELATIONSHIP, "a relationship", self._notes)
        words = {
            key: self._word(inner, key, known) for key, known in (("type", _TYPES), ("variant", _VARIANTS))
        }
        if not all(words.values()):
            return None
        through = inner.texts("through_tables")
        if len(through) > 1:
            self._notes.left(
                inner.line_of("through_tables"),
                f"PGSync goes through one table; {', '.join(through[1:])} is left out",
                "Join the tables between as nodes of their own.",
            )
        columns = self._foreign_key(inner)
        if through and any(columns):
            self._notes.differs(
                inner.line_of("foreign_key"),
                "beside `through_tables` a `foreign_key` has no effect in PGSync",
            )
            columns = (), ()
        return Relationship(
            to_many=words["type"] == "one_to_many",
            scalar=words["variant"] == "scalar",
            line=node.line,
            through=_table_name(through[0], table.schema) if through else None,
            parent=columns[0],
            child=columns[1],
        )

    def _word(self, reader: ObjectReader, key: str, known: tuple[str, ...]) -> str:
        word = reader.text(key).lower()
        if word not in known:
            problem = f"unknown {key} {word!r}" if word else f"a relationship without a {key}"
            self._notes.left(reader.line_of(key), f"{problem}: the node is left out", meant(word, known))
            return ""
        return word

    def _foreign_key(self, reader: ObjectReader) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns of the parent and those of the child."""
        node = reader.object("foreign_key")
        if node is None:
            return (), ()
        inner = ObjectReader(node, ("parent", "child"), "a foreign_key", self._notes)
        parent, child = (self._side(inner, key) for key in ("parent", "child"))
        if not parent or len(parent) != len(child):
            self._notes.left(
                node.line,
                f"the foreign_key names {quantity(len(parent), 'column')} of the parent "
                f"and {len(child)} of the child",
                "Name as many of both; until then the database's foreign keys count.",
            )
            return (), ()
        return parent, child

    def _side(self, reader: ObjectReader, key: str) -> tuple[str, ...]:
        """Read the columns of one side: a list, one text, or lists by table."""
        if not reader.has(key):
            return ()
        node = reader.member(key)
        match node.value:
            case str() as name:
                return (name,)
            case dict() as by_table:
                lists = ObjectReader(node, (*by_table,), f"{key!r} of a foreign_key", self._notes)
                return tuple(name for table in by_table for name in lists.texts(table))
            case _:
                return reader.texts(key)

    def _transforms(self, reader: ObjectReader) -> Transforms:
        node = reader.object("transform")
        if node is None:
            return Transforms()
        inner = ObjectReader(node, _TRANSFORM, "a transform", self._notes)
        if inner.has("move"):
            self._notes.differs(
                inner.line_of("move"), "PGSync 7.3 does nothing with `move`, and it is left out"
            )
        return Transforms(
            rename=dict(self._texts(inner, "rename")),
            replace=self._replace(inner),
            concat=tuple(self._concats(inner)),
            mapping=_plain(inner, "mapping"),
            line=node.line,
        )

    def _replace(self, reader: ObjectReader) -> dict[str, dict[str, str]]:
        node = reader.object("replace")
        if node is None:
            return {}
        inner = ObjectReader(node, node.value, "replace", self._notes)
        return {key: dict(self._texts(inner, key)) for key in node.value}

    def _texts(self, reader: ObjectReader, key: str) -> Iterator[tuple[str, str]]:
        """Yield the members of an object whose values are texts."""
        for name, node in reader.members(key):
            if isinstance(node.value, str):
                yield name, node.value
            else:
                self._notes.left(
                    node.line,
                    f"{name!r} in {key!r} is {node.described}, not text: it is left out",
                    "Write text.",
                )

    def _concats(self, reader: ObjectReader) -> Iterator[Concat]:
        if not reader.has("concat"):
            return
        node = reader.member("concat")
        for entry in node.value if isinstance(node.value, list) else [node]:
            inner = ObjectReader(entry, ("columns", "destination", "delimiter"), "a concat", self._notes)
            columns, destination = inner.texts("columns"), inner.text("destination")
            if columns and destination:
                yield Concat(columns, destination, inner.text("delimiter"), entry.line)
            elif isinstance(entry.value, dict):
                self._notes.left(
                    entry.line, "a concat without columns or destination is left out", "Add both."
                )


def _plain(reader: ObjectReader, key: str) -> dict[str, Any]:
    node = reader.object(key)
    return {} if node is None else dict(node.plain)


def _table_name(text: str, schema: str) -> TableName:
    """Return the table that a text names, which may hold its schema."""
    first, dot, rest = text.partition(".")
    return TableName(first, rest) if dot else TableName(schema, text)
