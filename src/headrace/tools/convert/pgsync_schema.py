"""Convert the tree of a PGSync index: to the fields of a schema file, and to what only Python can do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.catalog.remedies import key_advice
from headrace.catalog.table import Catalog, Column
from headrace.model.names import quote_if_needed
from headrace.model.suggestion import meant
from headrace.sinks.opensearch.settings import merge
from headrace.tools.convert.column_types import (
    added_mapping,
    column_field,
    implied_type,
    is_unsearched,
    plain_mapping,
)
from headrace.tools.convert.links import (
    Between,
    find_between,
    find_link,
    foreign_key_words,
    join_words,
    junction_words,
    table_words,
)
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import Child, Node, PgsyncIndex
from headrace.tools.convert.schema_text import FieldEntry, names_value
from headrace.tools.convert.sides import Side, find_side, find_table, key_of
from headrace.tools.convert.transform_file import DocumentStep

_OPERATOR = re.compile(r"(#>>|->>|#>|->)")
"""Between the steps of a path into a json column."""

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


def convert_index(index: PgsyncIndex, catalog: Catalog, notes: Notes) -> ConvertedIndex | None:
    """Convert one index; None, with a note, where the database does not have its root.

    Args:
        index: as PGSync has it.
        catalog: of every table that it names.
        notes: where goes what is not the same, of this index.
    """
    root = index.nodes
    side = find_side(root, catalog, notes.below("nodes"))
    if side is None:
        return None
    # In the order in which PGSync joins it to an id.
    side = replace(side, key=tuple(sorted(side.key)))
    mapping = {**root.transform.mapping, **index.properties}
    return _Converter(index, catalog, notes).convert(_At(root, side, (), mapping, notes.below("nodes")))


@dataclass(frozen=True, slots=True)
class _At:
    """A node of the tree, at its place in the document.

    Attributes:
        side: its table and key.
        path: the document keys that lead to it.
        mapping: PGSync's mapping of its keys.
        notes: on the node.
        taken: the document keys that its rows have already.
        helpers: the keys of json columns that are only shown for paths into them, by column.
    """

    node: Node
    side: Side
    path: tuple[str, ...]
    mapping: Mapping[str, Any]
    notes: Notes
    taken: set[str] = field(default_factory=set)
    helpers: dict[str, str] = field(default_factory=dict)

    def final(self, name: str) -> str:
        """Return the document key of a column or label."""
        return self.node.transform.rename.get(name, name)

    def free_key(self, like: str) -> str:
        """Take a document key like a text that the schema language has and that is free."""
        base = "_" + re.sub(r"\W+", "_", like, flags=re.ASCII).strip("_")[:_LONGEST]
        key = next(key for key in (base, *(f"{base}_{n}" for n in range(2, 1000))) if key not in self.taken)
        self.taken.add(key)
        return key

    def columns(self) -> Iterator[tuple[str, Notes]]:
        """Yield the columns that the node shows, with their notes: those that it names, or all."""
        if not self.node.columns:
            yield from ((name, self.notes) for name in self.side.shown)
            return
        for number, name in enumerate(self.node.columns):
            if name not in self.node.columns[:number]:
                yield name, self.notes.below("columns", number)


class _Converter:
    def __init__(self, index: PgsyncIndex, catalog: Catalog, notes: Notes) -> None:
        self._index = index
        self._catalog = catalog
        self._notes = notes
        self._result = ConvertedIndex()
        self._concats: list[DocumentStep] = []
        """Steps that read what the others have made, also columns that are only there for paths into them."""
        self._drops: list[DocumentStep] = []

    def convert(self, at: _At) -> ConvertedIndex:
        """Convert the whole tree."""
        side = at.side
        if len(side.key) > 1:
            at.notes.differs(
                f"the key of {side.name} has several columns: an id is joined by ':', in PGSync by '|'",
                "Programs that build ids themselves must use ':'.",
            )
        fields = self._object_fields(at)
        self._result.head = {
            "version": 1,
            **table_words(side.name, "public"),
            "primary_key": names_value(side.key),
            **self._routing(at, fields),
            "fields": fields,
        }
        self._result.steps += [*self._concats, *self._drops]
        self._keep_rest(at)
        return self._result

    # one row

    def _object_fields(self, at: _At) -> list[FieldEntry]:
        """Return the fields of a node's rows, and of those below them."""
        at.taken.update(at.final(child.key) for child in at.node.children)
        fields: list[FieldEntry] = []
        for text, notes in at.columns():
            if _OPERATOR.search(text):
                fields += self._extracted(at, text, notes)
                continue
            key = at.final(text)
            # What has the key of a child is left out, as PGSync overwrites it with the child's rows.
            column = None if key in at.taken else _find_column(at.side, text, notes)
            if column is not None:
                at.taken.add(key)
                fields.append(self._column(at, column, notes, key))
        self._replacements(at)
        self._concat(at)
        for number, child in enumerate(at.node.children):
            fields += self._child(at, child, at.notes.below("children", number))
        return fields

    def _column(self, at: _At, column: Column, notes: Notes, key: str) -> FieldEntry:
        """Return the field of a column; a key that the schema language does not have is made by a step."""
        own = self._own_key(at, key)
        found = column_field(own, column, _entry(at.mapping, key))
        if own != key:
            self._map(at.path, key, plain_mapping(found))
        if is_unsearched(found):
            notes.differs(
                f"{column.name} of {at.side.name} is json: it is in the documents, and cannot be searched",
                "docs/reference/schema.md has the forms that are searched.",
            )
        if column.base_type in ("bytea", "money"):
            form = "base64, not hexadecimal" if column.base_type == "bytea" else "a number, not text"
            notes.differs(f"{column.name} of {at.side.name} is {column.base_type}: it becomes {form}")
        return found

    def _own_key(self, at: _At, key: str) -> str:
        """Return a key that the schema language has; where that is another one, a step gives `key` back."""
        if _KEY.fullmatch(key):
            return key
        own = at.free_key(key)
        self._result.steps.append(DocumentStep(at.path, "rename", (own, key)))
        return own

    def _extracted(self, at: _At, text: str, notes: Notes) -> Iterator[FieldEntry]:
        """Convert a path into a json column: the column, and a step that follows the path."""
        name, *parts = _OPERATOR.split(text)
        steps = tuple(zip(parts[::2], parts[1::2], strict=True))
        key = at.final(_shown_name(text))
        if any(operator.endswith(">>") for operator, _ in steps):
            notes.differs(
                "PGSync 7.3 reads `->>` and `#>>` as `->` and `#>` of a key that begins with '>', and "
                "finds nothing; here they give the text"
            )
        if _find_column(at.side, name, notes) is None:
            return
        if any(name == column for column, _ in at.columns()):
            helper = at.final(name)
        elif name in at.helpers:
            helper = at.helpers[name]
        else:
            helper = at.helpers[name] = at.free_key(f"{name}_of_{at.side.name.name}")
            yield {"json": helper, "column": quote_if_needed(name), "options": {"enabled": False}}
            self._drops.append(DocumentStep(at.path, "drop", (helper,)))
        mapping = _entry(at.mapping, key)
        self._result.steps.append(DocumentStep(at.path, "extract", (helper, steps, key)))
        self._map(at.path, key, added_mapping(mapping, is_json=not steps[-1][0].endswith(">>")))
        if not mapping:
            notes.differs(
                f"{text} becomes {key!r} in Python: it is in the documents, and cannot be searched",
                "Name its type in the mappings file.",
            )

    # transforms

    def _replacements(self, at: _At) -> None:
        names = {_shown_name(text) for text, _ in at.columns()}
        for name, pairs in at.node.transform.replace.items():
            if name in names:
                self._result.steps.append(DocumentStep(at.path, "replace", (at.final(name), dict(pairs))))

    def _concat(self, at: _At) -> None:
        for concat in at.node.transform.concat:
            arguments = (tuple(concat.columns), concat.destination, concat.delimiter)
            self._concats.append(DocumentStep(at.path, "concat", arguments))
            mapping = _entry(at.mapping, concat.destination)
            self._map(at.path, concat.destination, added_mapping(mapping, is_json=False))

    # related rows

    def _child(self, above: _At, child: Child, notes: Notes) -> Iterator[FieldEntry]:
        """Convert a child: a join, for a junction between keys of several columns two of them."""
        side = find_side(child, self._catalog, notes)
        if side is None:
            return
        relationship, key = child.relationship, above.final(child.key)
        of_join = notes.below("relationship")
        mapping = _entry(above.mapping, key)
        own_mapping = {**child.transform.mapping, **mapping.get("properties", {})}
        at = _At(child, side, (*above.path, key), own_mapping, notes)
        if child.through is None:
            link = find_link(above.side, side, relationship, of_join)
            own = self._own_key(above, key)
            joined = join_words(above.side, side, link, own, of_join, to_many=relationship.to_many)
        else:
            table = find_table(child.through, self._catalog, of_join)
            if table is None:
                return
            between = find_between(above.side, side, Side(table, key_of(table), ()), of_join)
            _tell_through(child, of_join)
            if not between.is_single:
                yield self._nested(above, at, child, between)
                return
            own = self._own_key(above, key)
            joined = junction_words(above.side, side, between, own)
        content, options = self._content(above, at, child), self._options(above, at, child)
        if options.get("type") == implied_type(joined):
            del options["type"]
        found = {**joined, **({"options": options} if options else {}), **content}  # the longest is the last
        if own != key:
            self._map(above.path, key, plain_mapping(found))
        yield found

    def _options(self, above: _At, at: _At, child: Child) -> dict[str, Any]:
        """Return the mapping of a join's objects: plain ones, as clusters map them by themselves."""
        if child.relationship.scalar:
            return {}
        mapping = _entry(above.mapping, at.path[-1])
        kind = mapping.get("type", "object")
        if kind not in ("object", "nested"):
            text = f"{at.path[-1]!r} is mapped as {kind} in PGSync: here its objects are plain ones"
            remedy = "docs/reference/schema.md has `geo` and `map` fields, of columns of one row."
            at.notes.left(text, remedy)
            return {"type": "object"}
        others = {word: value for word, value in mapping.items() if word not in ("type", "properties")}
        return {"type": kind, **others}

    def _content(self, above: _At, at: _At, child: Child) -> FieldEntry:
        """Return what a join holds: an object's fields, or the one value."""
        if not child.relationship.scalar:
            return {"fields": self._object_fields(at)}
        column = self._scalar_column(at)
        name = column.name
        if (pairs := child.transform.replace.get(name)) is not None:
            text = "PGSync 7.3 empties a list of scalars that it should `replace` in"
            at.notes.below("transform").differs(text)
            self._result.steps.append(DocumentStep(at.path[:-1], "replace", (at.path[-1], dict(pairs))))
        key = name if _KEY.fullmatch(name) else "value"
        # PGSync maps the values by the key of their list.
        mapping = _entry(above.mapping, at.path[-1])
        mapping.pop("properties", None)
        return {"scalar": True, "fields": [column_field(key, column, mapping or _entry(at.mapping, name))]}

    def _scalar_column(self, at: _At) -> Column:
        """Return the column whose values stand in place of objects: the first one, or else the key."""
        table = at.side.table
        for name, notes in at.columns():
            if not _OPERATOR.search(name) and (column := _find_column(at.side, name, notes)):
                return column
        return table.column(at.side.key[0]) or table.columns[0]

    def _nested(self, above: _At, at: _At, child: Child, between: Between) -> FieldEntry:
        """Return the junction's rows with the related ones in them; a step takes them out."""
        key, inner, middle = at.path[-1], "row", between.middle
        helper = above.free_key(f"{key}_through_{middle.name.name}")
        self._result.steps.append(DocumentStep(above.path, "flatten", (helper, inner, key)))
        # The schema language joins through one column; two joins, one in the other, take keys of several.
        is_list = key_advice(at.side.table, between.right.below) is not None
        of_join = at.notes.below("relationship")
        related = join_words(middle, at.side, between.right, inner, of_join, to_many=is_list)
        related |= self._content(above, at, child)
        left = between.left.ordered_by(above.side.key)
        options = self._options(above, at, child)
        self._map(above.path, key, plain_mapping({**related, "options": options}))
        return {
            "has_many": helper,
            **table_words(middle.name, above.side.name.schema),
            "primary_key": names_value(middle.key),
            **foreign_key_words(above.side, left),
            "options": {"enabled": False},
            "fields": [related],
        }

    # the rest

    def _routing(self, at: _At, fields: list[FieldEntry]) -> FieldEntry:
        """Return the column that PGSync's routing key shows."""
        key = self._index.routing
        if not key:
            return {}
        for text, _ in at.columns():
            name = _shown_name(text)
            if at.final(name) == key and any(key in field.values() for field in fields):
                return {"routing": quote_if_needed(name)}
        self._notes.below("routing").left(
            f"the routing {key!r} is no column of {at.side.name}",
            "Write `routing:` with a column of the root in the schema file.",
        )
        return {}

    def _map(self, path: tuple[str, ...], key: str, mapping: Mapping[str, Any]) -> None:
        """Add the mapping of a key that the schema file does not hold."""
        place = self._result.mappings
        for part in path:
            place = place.setdefault("properties", {}).setdefault(part, {})
        # Below the key may be mapped already what a join's steps add.
        place["properties"] = merge(place.get("properties", {}), {key: dict(mapping)})

    def _keep_rest(self, at: _At) -> None:
        """Keep the index's own mapping of keys that no column gives: a plugin may."""
        shown = {str(next(iter(field.values()))) for field in self._result.head["fields"]}
        known = shown | set(self._result.mappings.get("properties", {}))
        for key, mapping in at.mapping.items():
            if key not in known and isinstance(mapping, dict):
                self._map((), key, mapping)
        self._result.mappings |= self._index.more_mapping


def _find_column(side: Side, name: str, notes: Notes) -> Column | None:
    column = side.table.column(name)
    if column is None:
        known = [column.name for column in side.table.columns]
        notes.left(f"{side.name} has no column {name!r}: it is left out", meant(name, known))
    return column


def _tell_through(child: Child, notes: Notes) -> None:
    is_whole = child.relationship.to_many or child.relationship.scalar or child.children
    if child.relationship.foreign_key is not None:
        text = "`foreign_key` beside `through_tables` is not read: the database's foreign keys are"
        notes.below("foreign_key").left(text, "Compare left_key and right_key in the schema file.")
    if not is_whole and len(child.columns) != 1:
        text = "through a table even one_to_one is a list; in PGSync it shows only the first column"
        notes.differs(text)


def _shown_name(text: str) -> str:
    """Return the key that PGSync gives a column, or what a path leads to: `doc_a_0` for `doc->a->0`."""
    name, *parts = _OPERATOR.split(text)
    return "_".join(re.sub("[{}]", "", part) for part in (name, *parts[1::2]))


def _entry(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = mapping.get(key)
    return dict(found) if isinstance(found, dict) else {}
