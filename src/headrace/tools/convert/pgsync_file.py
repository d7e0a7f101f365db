"""Read a PGSync schema.json, in the words of PGSync 7.3, into typed values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from headrace.config.file_model import FileModel
from headrace.config.problems import KeyPath, Locator, keys_of, nearest_line
from headrace.config.text_files import parse_json, read_text
from headrace.errors import ErrorGroup, Kind, LocatedError, Place
from headrace.model.names import TableName
from headrace.model.units import quantity
from headrace.tools.convert.notes import Notes


class _Object(FileModel):
    """An object of the file; a key with null is as good as absent."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: item for key, item in value.items() if item is not None}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _joined(value: object) -> object:
    """Return the columns of one side of a foreign key: one text, a list, or lists by table."""
    if isinstance(value, dict) and all(isinstance(names, list) for names in value.values()):
        return [name for names in value.values() for name in names]
    return [value] if isinstance(value, str) else value


def _substituted(text: str, info: ValidationInfo) -> str:
    """Return a text in which `$NAME` stands for a variable, as PGSync does at the top of the file."""
    found = Template(text).safe_substitute(info.context or {})
    if "$" in found:
        raise ValueError(f"it holds a variable that is not set: {found}")
    return found


_Name = Annotated[str, Field(min_length=1)]
_Columns = Annotated[list[str], Field(min_length=1), BeforeValidator(_joined)]
_Text = Annotated[str, AfterValidator(_substituted)]


class JoinedColumns(_Object):
    """The columns by which a node's rows equal the row above."""

    parent: _Columns
    child: _Columns

    @model_validator(mode="after")
    def _are_as_many(self) -> Self:
        if len(self.parent) != len(self.child):
            ours, theirs = quantity(len(self.parent), "column"), len(self.child)
            raise ValueError(f"it names {ours} of the parent and {theirs} of the child")
        return self


class Relationship(_Object):
    """How a node's rows belong to the row above."""

    type: Literal["one_to_one", "one_to_many"]
    variant: Literal["object", "scalar"]
    through_tables: Annotated[list[str], Field(max_length=1)] = Field(default_factory=list)
    foreign_key: JoinedColumns | None = None

    @property
    def to_many(self) -> bool:
        """Whether the document holds a list."""
        return self.type == "one_to_many"

    @property
    def scalar(self) -> bool:
        """Whether one value stands in place of an object."""
        return self.variant == "scalar"


class Concat(_Object):
    """A text that is put together from others."""

    columns: Annotated[list[str], Field(min_length=1)]
    destination: _Name
    delimiter: str = ""


class Transform(_Object):
    """What `transform` of a node says; `mapping` by the key in the document. PGSync 7.3 ignores `move`."""

    rename: dict[str, str] = Field(default_factory=dict)
    replace: dict[str, dict[str, str]] = Field(default_factory=dict)
    concat: Annotated[list[Concat], BeforeValidator(_as_list)] = Field(default_factory=list)
    mapping: dict[str, Any] = Field(default_factory=dict)
    move: Any = None


class Node(_Object):
    """A table of a document; an entry of `columns` is a name, or a path into a json column (`doc->a->0`)."""

    table: _Name
    schema_name: str = Field("public", alias="schema")
    label: str = ""
    columns: list[str] = Field(default_factory=list)
    children: list[Child] = Field(default_factory=list)
    primary_key: list[str] = Field(default_factory=list)
    base_tables: list[str] = Field(default_factory=list)
    relationship: Any = None
    transform: Transform = Transform()

    @property
    def name(self) -> TableName:
        """The table's name."""
        return TableName(self.schema_name, self.table)

    @property
    def key(self) -> str:
        """The node's own document key, before `rename`."""
        return self.label or self.table

    def tables(self) -> Iterator[TableName]:
        """Yield every table that this node and those below it name, and those between them."""
        yield self.name
        for child in self.children:
            if child.through is not None:
                yield child.through
            yield from child.tables()


class Child(Node):
    """A table whose rows belong to those of the node above."""

    relationship: Relationship

    @property
    def through(self) -> TableName | None:
        """The table between this one and the one above."""
        for text in self.relationship.through_tables:
            schema, dot, name = text.partition(".")
            return TableName(schema, name) if dot else TableName(self.schema_name, text)
        return None


class PgsyncIndex(_Object):
    """One entry of the file: an index and the tree of its documents."""

    database: _Text = ""
    index: _Text = ""
    nodes: Node
    plugins: list[str] = Field(default_factory=list)
    pipeline: _Text = ""
    routing: _Text = ""
    setting: dict[str, Any] = Field(default_factory=dict)
    mapping: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not self.name:
            raise ValueError('it has no name: add "index"')
        return self

    @property
    def name(self) -> str:
        """The index's name."""
        return self.index or self.database

    @property
    def properties(self) -> dict[str, Any]:
        """The mappings of its documents' keys: all that `mapping` holds, or its `properties`."""
        return self.mapping.get("properties", {}) if self._holds_whole_mapping else self.mapping

    @property
    def more_mapping(self) -> dict[str, Any]:
        """What `mapping` holds beside properties (`dynamic_templates`)."""
        more = {key: value for key, value in self.mapping.items() if key != "properties"}
        return more if self._holds_whole_mapping else {}

    @property
    def _holds_whole_mapping(self) -> bool:
        return "dynamic_templates" in self.mapping or isinstance(self.mapping.get("properties"), dict)


_MODELS: Mapping[str | int, type[BaseModel]] = {
    "nodes": Node,
    "children": Child,
    "relationship": Relationship,
    "foreign_key": JoinedColumns,
    "transform": Transform,
    "concat": Concat,
}


def read_pgsync(file: Path, variables: Mapping[str, str]) -> tuple[list[PgsyncIndex], Notes]:
    """Read the file `schema.json`; return its indexes, and what takes notes on it.

    Args:
        file: the file.
        variables: what `$NAME` in a text at the top stands for.

    Raises:
        ErrorGroup: CONFIG; every mistake.
        HeadraceError: CONFIG: it cannot be read, is no JSON, or holds no index.
    """
    text = read_text(file, "the schema of PGSync", Kind.CONFIG)
    data, lines = parse_json(file, text), _find_lines(text)
    # PGSync takes one index without a list around it, too.
    if isinstance(data, dict):
        data, lines = [data], {(0, *path): line for path, line in lines.items()}
    if not isinstance(data, list) or not data:
        remedy = 'Write a list of objects with "database", "index" and "nodes".'
        raise LocatedError(Kind.CONFIG, Place(file, 1), "the file holds no index", remedy)
    try:
        indexes = TypeAdapter(list[PgsyncIndex]).validate_python(data, context=variables)
    except ValidationError as error:
        locator = Locator(file, lambda path: nearest_line(lines, path), _known_keys, '"{}"')
        details = error.errors(include_url=False, include_input=False)
        raise ErrorGroup(locator.translate(details)) from None
    return indexes, Notes(file, lines)


def _known_keys(path: KeyPath) -> list[str]:
    """Return the keys of the object at a path, which the last word of it tells."""
    word = next((part for part in reversed(path) if isinstance(part, str)), "")
    return keys_of(_MODELS.get(word, PgsyncIndex))


def _find_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each value of a JSON text; nothing of a text with characters that YAML lacks."""
    # JSON is YAML, except for tabs between its tokens.
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        node = yaml.compose(text.replace("\t", " "), yaml.BaseLoader)
        assert node is not None, "JSON has a value"
        return dict(_lines((), node))
    return {}


def _lines(path: KeyPath, node: yaml.Node) -> Iterator[tuple[KeyPath, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _lines((*path, key.value), value)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _lines((*path, number), item)
