"""Convert the tree of a PGSync index: to the fields of a schema file, and to what only Python can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.catalog.remedies import key_advice
from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.schema.writing import name_text
from headrace.tools.convert.column_types import added_mapping, column_field, is_unsearched, plain_mapping
from headrace.tools.convert.join_words import foreign_key_words, join_words, junction_words, table_words
from headrace.tools.convert.links import Between, Side, find_between, find_link
from headrace.tools.convert.node_tables import OPERATOR, NodeTables
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import ColumnEntry, Node, PgsyncIndex
from headrace.tools.convert.schema_text import FieldEntry, names_value
from headrace.tools.convert.transform_file import DocumentStep
from headrace.tools.convert.views import TableView

# A key of the schema language is a name; PGSync takes any text.
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LONGEST = 50


@dataclass
class ConvertedIndex:
    """An index in Headrace's words.

    Attributes:
        head: the schema file, key by key.
        steps: what its transform does.
        mappings: of keys that the schema file cannot hold, as `mappings_file` takes them.
    """

    head: FieldEntry = field(default_factory=dict)
    steps: list[DocumentStep] = field(default_factory=list)
    mappings: dict[str, Any] = field(default_factory=dict)


def convert_index(
    index: PgsyncIndex, catalog: Catalog | None, views: Mapping[TableName, TableView], notes: Notes
) -> ConvertedIndex:
    """Convert one index.

    Args:
        index: as PGSync has it.
        catalog: of every table that it names; None where the database is not known.
        views: what is known of those that it names.
        notes: where goes what is not the same.
    """
    return _Converter(index, catalog, views, notes).convert()


@dataclass(frozen=True, slots=True)
class _At:
    """A node of the tree, at its place in the document.

    Attributes:
        side: its table and key.
        path: the document keys that lead to it.
        mapping: PGSync's mapping of its keys.
    """

    node: Node
    side: Side
    path: tuple[str, ...]
    mapping: Mapping[str, Any]

    def final(self, name: str) -> str:
        """Return the document key of a column or label."""
        return self.node.transforms.rename.get(name, name)


class _Converter:
    def __init__(
        self, index: PgsyncIndex, catalog: Catalog | None, views: Mapping[TableName, TableView], notes: Notes
    ) -> None:
        self._index = index
        self._catalog = catalog
        self._tables = NodeTables(catalog, views, notes)
        self._notes = notes
        self._result = ConvertedIndex()
        self._last: list[DocumentStep] = []
        """Steps that read what the others have made."""
        self._helpers: dict[tuple[tuple[str, ...], str], str] = {}
        """The keys of json columns that are only shown for paths into them, by place and column."""

    def convert(self) -> ConvertedIndex:
        """Convert the whole tree."""
        index, root = self._index, self._tables.shown(self._index.root)
        side = self._tables.root_side(root)
        at = _At(root, side, (), {**root.transforms.mapping, **index.mapping})
        fields = self._object_fields(at)
        self._result.head = {
            "version": 1,
            **table_words(side.name, "public"),
            "primary_key": names_value(side.key),
            **self._routing(at, fields),
            **self._tables.filters(root),
            "fields": fields,
        }
        self._result.steps += self._last
        self._keep_rest(at)
        return self._result

    # one row

    def _object_fields(self, at: _At) -> list[FieldEntry]:
        """Return the fields of a node's rows, and of those below them."""
        labels = {at.final(child.label) for child in at.node.children}
        taken = set(labels)
        fields: list[FieldEntry] = []
        entries = list(self._columns(at))
        for entry in entries:
            if OPERATOR.search(entry.text):
                fields += self._extracted(at, entry, entries, taken)
                continue
            key = at.final(entry.text)
            # The column is left out, as PGSync overwrites it with the rows of the child.
            if key in labels:
                self._notes.differs(
                    entry.line, f"{key!r} is the label of a child too, which wins, as in PGSync"
                )
            elif key not in taken and self._exists(at.side, entry):
                taken.add(key)
                fields.append(self._column(at, entry, key, taken))
        self._replacements(at)
        self._concats(at)
        for child in at.node.children:
            fields += self._child(at, child, taken)
        return fields

    def _columns(self, at: _At) -> Iterator[ColumnEntry]:
        """Yield the columns that a node shows: those that it names, or all."""
        if at.node.columns:
            yield from dict.fromkeys(at.node.columns)
        elif at.side.table is not None:
            yield from (ColumnEntry(column.name, at.node.line) for column in at.side.table.columns)
        else:
            self._notes.left(
                at.node.line,
                f"{at.side.name} shows all its columns, and without the database they are unknown",
                'Name --env or --database, or list "columns".',
            )
        if at.node.columns and at.side.table is None:
            self._notes.left(
                at.node.line,
                f"without the database the types of the columns of {at.side.name} are unknown: those "
                "without a mapping are written as text",
                "Name --env or --database, or correct them: `headrace check` says what each is.",
            )

    def _exists(self, side: Side, entry: ColumnEntry) -> bool:
        if side.table is None or side.column(entry.text) is not None:
            return True
        known = [column.name for column in side.table.columns]
        self._notes.left(
            entry.line, f"{side.name} has no column {entry.text!r}: it is left out", meant(entry.text, known)
        )
        return False

    def _column(self, at: _At, entry: ColumnEntry, key: str, taken: set[str]) -> FieldEntry:
        """Return the field of a column; a key that the schema language does not have is made by a step."""
        column, mapping = at.side.column(entry.text), _entry(at.mapping, key)
        own = self._own_key(at, key, taken)
        found = column_field(own, entry.text, column, mapping)
        if own != key:
            self._map(at.path, key, plain_mapping(found))
        if is_unsearched(found):
            self._notes.differs(
                entry.line,
                f"{entry.text} of {at.side.name} is json: it is in the documents, and cannot be searched",
                "docs/reference/schema.md has the forms that are searched.",
            )
        if column is not None and column.base_type in ("bytea", "money"):
            form = "base64, not hexadecimal" if column.base_type == "bytea" else "a number, not text"
            self._notes.differs(
                entry.line, f"{entry.text} of {at.side.name} is {column.base_type}: it becomes {form}"
            )
        return found

    def _own_key(self, at: _At, key: str, taken: set[str]) -> str:
        """Return a key that the schema language has; where that is another one, a step gives `key` back."""
        if _KEY.fullmatch(key):
            return key
        own = self._free_key(key, taken)
        self._result.steps.append(DocumentStep(at.path, "rename", (own, key)))
        return own

    def _free_key(self, like: str, taken: set[str]) -> str:
        base = "_" + re.sub(r"\W+", "_", like, flags=re.ASCII).strip("_")[:_LONGEST]
        key = next(key for key in (base, *(f"{base}_{n}" for n in range(2, 1000))) if key not in taken)
        taken.add(key)
        return key

    def _extracted(
        self, at: _At, entry: ColumnEntry, entries: Iterable[ColumnEntry], taken: set[str]
    ) -> Iterator[FieldEntry]:
        """Convert a path into a json column: the column, and a step that follows the path."""
        name, *parts = OPERATOR.split(entry.text)
        steps = tuple(zip(parts[::2], parts[1::2], strict=True))
        key = at.final(_shown_name(entry))
        if any(operator.endswith(">>") for operator, _ in steps):
            self._notes.differs(
                entry.line,
                "PGSync 7.3 reads `->>` and `#>>` as `->` and `#>` of a key that begins with '>', and "
                "finds nothing; here they give the text",
            )
        if not self._exists(at.side, ColumnEntry(name, entry.line)):
            return
        place = (at.path, name)
        if any(other.text == name for other in entries):
            helper = at.final(name)
        elif place in self._helpers:
            helper = self._helpers[place]
        else:
            helper = self._helpers[place] = self._free_key(f"{name}_of_{at.side.name.name}", taken)
            yield {"json": helper, "column": name_text(name), "options": {"enabled": False}}
            self._last.append(DocumentStep(at.path, "drop", (helper,)))
        mapping = _entry(at.mapping, key)
        self._result.steps.append(DocumentStep(at.path, "extract", (helper, steps, key)))
        self._map(at.path, key, added_mapping(mapping, is_json=not steps[-1][0].endswith(">>")))
        if not mapping:
            self._notes.differs(
                entry.line,
                f"{entry.text} becomes {key!r} in Python: it is in the documents, and cannot be searched",
                "Name its type in the mappings file.",
            )

    # transforms

    def _replacements(self, at: _At) -> None:
        names = set(self._shown_names(at))
        for name, pairs in at.node.transforms.replace.items():
            if name in names:
                self._result.steps.append(DocumentStep(at.path, "replace", (at.final(name), dict(pairs))))
            else:
                self._notes.differs(
                    at.node.transforms.line, f"`replace` of {name!r} has no effect: it is not shown"
                )

    def _shown_names(self, at: _At) -> list[str]:
        """Return the names of what a node shows, before `rename`."""
        if at.node.columns or at.side.table is None:
            return [_shown_name(entry) for entry in at.node.columns]
        return [column.name for column in at.side.table.columns]

    def _concats(self, at: _At) -> None:
        for concat in at.node.transforms.concat:
            arguments = (concat.columns, concat.destination, concat.delimiter)
            # A concat may read a column that is only there for a path into it, and that is dropped at the
            # end.
            self._last.insert(self._before_drops(), DocumentStep(at.path, "concat", arguments))
            mapping = _entry(at.mapping, concat.destination)
            self._map(at.path, concat.destination, added_mapping(mapping, is_json=False))

    def _before_drops(self) -> int:
        return next((n for n, step in enumerate(self._last) if step.function == "drop"), len(self._last))

    # related rows

    def _child(self, above: _At, child: Node, taken: set[str]) -> Iterator[FieldEntry]:
        """Convert a child: a join, for a junction between keys of several columns two of them."""
        child = self._tables.shown(child)
        relationship = child.relationship
        assert relationship is not None
        key = above.final(child.label)
        side = self._tables.side(child)
        mapping = _entry(above.mapping, key)
        at = _At(
            child, side, (*above.path, key), {**child.transforms.mapping, **mapping.get("properties", {})}
        )
        if child.transforms.rename and relationship.scalar:
            self._notes.differs(child.transforms.line, "a scalar has no key that `rename` could change")
        if relationship.through is None:
            link = find_link(above.side, side, child, self._notes)
            own = self._own_key(above, key, taken)
            joined = join_words(above.side, side, relationship, link, key=own, notes=self._notes)
        else:
            between = find_between(above.side, side, child, self._catalog, self._notes)
            self._tell_through(child)
            if not between.is_single:
                yield self._nested(above, at, between, taken)
                return
            own = self._own_key(above, key, taken)
            joined = junction_words(above.side, side, between, own)
        found = {**joined, **self._tables.filters(child), **self._content(at)}
        if own != key:
            self._map(above.path, key, plain_mapping(found))
        elif options := self._options(found, mapping):
            found["options"] = options
        fields = found.pop("fields")
        yield {**found, "fields": fields}  # the longest is the last

    def _options(self, join: FieldEntry, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping of a join; a list is made of plain objects, as clusters map it by themselves."""
        options = {word: value for word, value in mapping.items() if word not in ("type", "properties")}
        is_list = "has_many" in join or "many_to_many" in join
        if is_list and not join.get("scalar") and mapping.get("type") != "nested":
            return {"type": "object", **options}
        return options

    def _content(self, at: _At) -> FieldEntry:
        """Return what a join holds: an object's fields, or the one value."""
        relationship = at.node.relationship
        if relationship is None or not relationship.scalar:
            return {"fields": self._object_fields(at)}
        first = self._scalar_column(at)
        if (pairs := at.node.transforms.replace.get(first.text)) is not None:
            text = "PGSync 7.3 empties a list of scalars that it should `replace` in"
            self._notes.differs(at.node.transforms.line, text)
            self._result.steps.append(DocumentStep(at.path[:-1], "replace", (at.path[-1], dict(pairs))))
        key = first.text if _KEY.fullmatch(first.text) else "value"
        mapping = _entry(at.mapping, first.text)
        return {
            "scalar": True,
            "fields": [column_field(key, first.text, at.side.column(first.text), mapping)],
        }

    def _scalar_column(self, at: _At) -> ColumnEntry:
        """Return the column whose values stand in place of objects: the first one, or else the key."""
        columns = [entry for entry in self._columns(at) if not OPERATOR.search(entry.text)]
        if len(columns) != 1 or at.node.children:
            self._notes.differs(at.node.line, "a scalar is the first column alone, as in PGSync")
        if columns and self._exists(at.side, columns[0]):
            return columns[0]
        return ColumnEntry(at.side.key[0], at.node.line)

    def _nested(self, above: _At, at: _At, between: Between, taken: set[str]) -> FieldEntry:
        """Return the junction's rows with the related ones in them; a step takes them out."""
        key, inner = at.path[-1], "row"
        helper = self._free_key(f"{key}_through_{between.table.name}", taken)
        self._result.steps.append(DocumentStep(above.path, "flatten", (helper, inner, key)))
        # The schema language joins through one column; two joins, one in the other, take keys of several.
        middle = Side(between.table, None, between.key)
        lists = at.side.table is None or key_advice(at.side.table, between.right.below) is not None
        assert at.node.relationship is not None
        relationship = replace(at.node.relationship, to_many=lists)
        related = join_words(middle, at.side, relationship, between.right, key=inner, notes=self._notes)
        related |= {**self._tables.filters(at.node), **self._content(at)}
        left = between.left.ordered_by(above.side.key)
        self._map(above.path, key, plain_mapping(related))
        return {
            "has_many": helper,
            **table_words(between.table, above.side.name.schema),
            "primary_key": names_value(between.key),
            **foreign_key_words(above.side, left),
            "options": {"enabled": False},
            "fields": [related],
        }

    def _tell_through(self, child: Node) -> None:
        relationship = child.relationship
        if relationship is not None and not relationship.to_many:
            short = not relationship.scalar and not child.children and len(child.columns) != 1
            self._notes.differs(
                relationship.line,
                "through a table even one_to_one is a list, as in PGSync"
                + (", which shows only its first column" if short else ""),
            )

    # the rest

    def _routing(self, at: _At, fields: list[FieldEntry]) -> FieldEntry:
        """Return the column that PGSync's routing key shows."""
        key = self._index.routing
        if not key:
            return {}
        for name in self._shown_names(at):
            if at.final(name) == key and any(key in field.values() for field in fields):
                return {"routing": name_text(name)}
        self._notes.left(
            self._index.lines["routing"],
            f"the routing {key!r} is no column of {at.side.name}",
            "Write `routing:` with a column of the root in the schema file.",
        )
        return {}

    def _map(self, path: tuple[str, ...], key: str, mapping: Mapping[str, Any]) -> None:
        """Add the mapping of a key that the schema file does not hold."""
        place = self._result.mappings
        for part in path:
            place = place.setdefault("properties", {}).setdefault(part, {})
        place.setdefault("properties", {})[key] = dict(mapping)

    def _keep_rest(self, at: _At) -> None:
        """Keep the index's own mapping of keys that no column gives: a plugin may."""
        shown = {str(next(iter(field.values()))) for field in self._result.head["fields"]}
        known = shown | set(self._result.mappings.get("properties", {}))
        for key, mapping in at.mapping.items():
            if key not in known and isinstance(mapping, dict):
                self._map((), key, mapping)
        self._result.mappings |= self._index.more_mapping


def _shown_name(entry: ColumnEntry) -> str:
    """Return the key that PGSync gives a column, or what a path leads to: `doc_a_0` for `doc->a->0`."""
    name, *parts = OPERATOR.split(entry.text)
    return "_".join(re.sub("[{}]", "", part) for part in (name, *parts[1::2]))


def _entry(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = mapping.get(key)
    return dict(found) if isinstance(found, dict) else {}
