"""Read a mapping of a schema file key by key; note every mistake and raise none.

A reader returns a value of the expected type even where the file is wrong (an empty one). So the caller goes
on and finds the next mistake; the list of mistakes decides at the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TypeGuard

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headrace.errors import Kind, LocatedError, Place
from headrace.model.suggestion import meant
from headrace.schema.tree import Scalar
from headrace.schema.yaml_nodes import SchemaSource, describe, json_value, kind_of, scalar

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_NAME_LENGTH = 63


class Mistakes:
    """The mistakes of one file, and the file itself."""

    def __init__(self, source: SchemaSource) -> None:
        self.source = source
        self.errors: dict[tuple[int, int | None, str], LocatedError] = {}
        """By line, column and problem."""

    def add(self, at: Node | Place, problem: str, remedy: str = "") -> None:
        """Note a mistake; the same one at the same place (an alias) only once."""
        place = at if isinstance(at, Place) else self.source.place_of(at)
        error = LocatedError(Kind.SCHEMA, place, problem, remedy)
        self.errors.setdefault((place.line, place.column, problem), error)

    def add_unexpected(self, node: Node, wanted: str, remedy: str) -> None:
        """Note that a node is something else than what is wanted there."""
        self.add(node, f"{wanted}, found {describe(node)}", remedy)

    def in_file_order(self) -> list[LocatedError]:
        """Return the mistakes in the order of the file."""
        return sorted(self.errors.values(), key=lambda error: (error.place.line, error.place.column))


def read_identifier(mistakes: Mistakes, node: Node) -> str:
    """Read the name of a column, table or schema as the catalog holds it; empty where it is wrong."""
    if kind_of(node) != "str" or not isinstance(node, ScalarNode):
        mistakes.add_unexpected(node, "expected a name", "Put a name that looks so in quotes.")
        return ""
    return fold_name(mistakes, node, str(node.value))


def fold_name(mistakes: Mistakes, node: Node, text: str) -> str:
    """Fold `text` to lower case; in SQL double quotes it stays as it is."""
    name = text.strip()
    if _QUOTED.fullmatch(name):
        name = name[1:-1].replace('""', '"')
    else:
        name = name.lower()
        if not _IDENTIFIER.fullmatch(name):
            remedy = """A name with other characters stands in SQL double quotes: '"Order ID"'."""
            mistakes.add(node, f"{text!r} is not a PostgreSQL name", remedy)
            return ""
    if len(name.encode()) > _MAX_NAME_LENGTH:
        mistakes.add(node, f"the name {name[:20]!r}… is longer than 63 bytes", "PostgreSQL has no such name.")
        return ""
    return name


def read_document_key(mistakes: Mistakes, node: Node) -> str:
    """Read a document key, its case kept; empty where it is wrong."""
    if kind_of(node) != "str" or not isinstance(node, ScalarNode):
        mistakes.add_unexpected(node, "expected a document key", "Write a name.")
        return ""
    key = str(node.value).strip()
    if not _KEY.fullmatch(key) or len(key) > _MAX_NAME_LENGTH:
        remedy = "Use letters, digits and _, at most 63, not beginning with a digit."
        mistakes.add(node, f"{key[:80]!r} cannot be a document key", remedy)
        return ""
    return key


class MappingReader:
    """Reads the values of a mapping with known keys; notes keys that are unknown, repeated or no text."""

    def __init__(self, mistakes: Mistakes, node: MappingNode, known: Collection[str], what: str) -> None:
        self.mistakes = mistakes
        self.node = node
        self.what = what
        self._values: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, ScalarNode) else ""
            if kind_of(key) != "str":
                mistakes.add_unexpected(key, f"a key of {what} must be text", "Put it in quotes.")
            elif name not in known:
                mistakes.add(key, f"unknown key {name!r} in {what}", meant(name, known))
            elif name in self._values:
                mistakes.add(key, f"the key {name!r} stands twice in {what}", "Keep one of them.")
            else:
                self._values[name] = value

    @property
    def place(self) -> Place:
        """Where the mapping begins."""
        return self.mistakes.source.place_of(self.node)

    def has(self, key: str) -> bool:
        """Return whether `key` is given and not null."""
        return self.get(key) is not None

    def get(self, key: str) -> Node | None:
        """Return the node of `key`; None where it is absent or null."""
        node = self._values.get(key)
        return None if node is None or kind_of(node) == "null" else node

    def at(self, key: str) -> Place:
        """Return where the value of `key` stands, or else where the mapping begins."""
        return self.mistakes.source.place_of(self._values.get(key, self.node))

    def note(self, problem: str, remedy: str, key: str = "") -> None:
        """Note a mistake in the value of `key`, or in the mapping."""
        self.mistakes.add(self.at(key), problem, remedy)

    def need(self, key: str, remedy: str = "") -> Node | None:
        """Return the node of `key`; note its absence."""
        node = self.get(key)
        if node is None:
            self.note(f"{self.what} has no {key!r}", remedy or f"Add `{key}:`.")
        return node

    def refuse(self, key: str, problem: str, remedy: str = "") -> None:
        """Note that `key` may not stand here, if it does."""
        if self.has(key):
            self.note(problem, remedy or f"Remove `{key}:`.", key)

    def identifier(self, key: str, default: str | None = None) -> str:
        """Read a PostgreSQL name; without `default` it is required."""
        node = self.need(key) if default is None else self.get(key)
        return (default or "") if node is None else read_identifier(self.mistakes, node)

    def identifiers(self, key: str, *, required: bool) -> tuple[str, ...]:
        """Read one PostgreSQL name, or a list of them without repetition."""
        node = self.need(key) if required else self.get(key)
        if node is None:
            return ()
        if not isinstance(node, SequenceNode):
            return (read_identifier(self.mistakes, node),)
        names = tuple(read_identifier(self.mistakes, item) for item in node.value)
        if not names:
            self.mistakes.add(node, f"{key!r} is an empty list", "Name at least one column.")
        if len(set(names)) < len(names) and all(names):
            self.mistakes.add(node, f"a column stands twice in {key!r}", "Name each column once.")
        return names

    def text(self, key: str, *, required: bool = True) -> str:
        """Read a text that is not empty."""
        node = self.need(key) if required else self.get(key)
        if node is None:
            return ""
        if kind_of(node) != "str" or not str(node.value).strip():
            self.mistakes.add_unexpected(node, f"{key!r} must be text", "Write text that is not empty.")
            return ""
        return str(node.value)

    def boolean(self, key: str) -> bool:
        """Read `true` or `false`; absent is false."""
        node = self.get(key)
        if node is not None and kind_of(node) != "bool":
            self.mistakes.add_unexpected(node, f"{key!r} must be true or false", "Write true or false.")
            return False
        return node is not None and str(node.value).lower() == "true"

    def integer(self, key: str) -> int | None:
        """Read a whole number ≥ 1."""
        node = self.get(key)
        if node is None:
            return None
        value = self.scalar(node)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
            self.mistakes.add(node, f"{key!r} must be a whole number from 1", f"Write `{key}: 10`.")
            return None
        return value

    def choice(self, key: str, words: Collection[str], *, required: bool = True) -> str:
        """Read one of `words`; empty where it is absent or wrong."""
        word = self.text(key, required=required)
        if word and word not in words:
            self.note(f"unknown {key} {word!r}", meant(word, words), key)
            return ""
        return word

    def sequence(self, key: str, *, required: bool = False) -> list[Node]:
        """Read the items of a list."""
        node = self.need(key) if required else self.get(key)
        if node is None:
            return []
        if not isinstance(node, SequenceNode) or kind_of(node) != "seq":
            self.mistakes.add_unexpected(node, f"{key!r} must be a list", "Begin each item with `- `.")
            return []
        return list(node.value)

    def record(self, key: str, known: Collection[str]) -> MappingReader | None:
        """Read a mapping; None where there is none."""
        node = self.get(key)
        if node is None or not is_mapping(node, self.mistakes, key):
            return None
        return MappingReader(self.mistakes, node, known, key)

    def records(self, key: str, known: Collection[str], what: str) -> list[MappingReader]:
        """Read the items of a list of mappings."""
        return [
            MappingReader(self.mistakes, node, known, what)
            for node in self.sequence(key)
            if is_mapping(node, self.mistakes, what)
        ]

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """Read a list of texts that are not empty."""
        result = []
        for node in self.sequence(key, required=required):
            if kind_of(node) != "str" or not node.value:
                self.mistakes.add_unexpected(node, f"{key!r} lists texts", "Put it in quotes.")
            else:
                result.append(str(node.value))
        return tuple(result)

    def scalar(self, node: Node, *, exact: bool = False) -> Scalar | None:
        """Read a single value; None where it is null or wrong."""
        try:
            return scalar(node, exact=exact)
        except ValueError as error:
            self.mistakes.add(node, str(error), "Write one text, number or boolean.")
            return None

    def options(self) -> tuple[tuple[str, object], ...]:
        """Read the mapping properties under `options`, as JSON values in the order of the file."""
        node = self.get("options")
        if node is None or not is_mapping(node, self.mistakes, "options"):
            return ()
        try:
            value = json_value(node)
        except ValueError as error:
            self.mistakes.add(node, str(error), "Write mapping properties as JSON has them.")
            return ()
        return tuple(value.items()) if isinstance(value, dict) else ()


def is_mapping(node: Node, mistakes: Mistakes, what: str) -> TypeGuard[MappingNode]:
    """Return whether `node` is a mapping; note it if not."""
    if isinstance(node, MappingNode) and kind_of(node) == "map":
        return True
    mistakes.add_unexpected(node, f"{what} must be a mapping", "Write `key: value` pairs.")
    return False
