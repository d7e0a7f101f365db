"""Parse the text of a schema file into YAML nodes that know their place.

It uses YAML 1.2's core schema: `yes`, `no`, `on` and `off` are text, so that a column may be called `on`; a
date is text too. Anchors work. A node that contains itself, an expansion bomb and very deep nesting are
refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from headrace.config.text_files import read_text
from headrace.errors import Kind, LocatedError, Place
from headrace.schema.core_type import SPECIAL, core_type
from headrace.schema.tree import Scalar

_TAG = "tag:yaml.org,2002:"
_MAX_NODES = 100_000
_MAX_DEPTH = 64
_MAX_LINE_LENGTH = 160


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """The name and the lines of a schema file, from which the places of nodes are made."""

    file: Path
    lines: tuple[str, ...]

    def place(self, line: int, column: int) -> Place:
        """Return the place at a line and column that count from 0, as PyYAML's marks do."""
        text = self.lines[line] if line < len(self.lines) else ""
        return Place(self.file, line + 1, column + 1, text[:_MAX_LINE_LENGTH])

    def at(self, mark: yaml.Mark) -> Place:
        """Return the place of a mark."""
        return self.place(mark.line, mark.column)

    def place_of(self, node: Node) -> Place:
        """Return where `node` begins."""
        return self.at(node.start_mark)


class _Composer(yaml.BaseLoader):
    """Composes nodes; refuses, before anything recurses, constructs that could hang a reader."""

    def __init__(self, source: SchemaSource, text: str) -> None:
        super().__init__(text)
        self._source = source
        self._open: list[str | None] = []
        """The anchors of the nodes that are being composed, one in the other."""
        self._sizes: dict[int, int] = {}
        """Of how many nodes each node consists, with those that aliases repeat."""

    def resolve(self, kind: type[Node], value: str | None, implicit: object) -> str:
        """Resolve the type of a plain scalar by YAML 1.2's core schema."""
        # Only a plain scalar has a type of its own: a quoted `no` is text in YAML 1.1 too.
        if kind is ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return _TAG + core_type(value or "")
        names: dict[object, str] = {ScalarNode: "str", SequenceNode: "seq", MappingNode: "map"}
        return _TAG + names[kind]

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if problem := self._problem(event):
            raise _refusal(self._source.at(event.start_mark), problem)
        self._open.append(None if isinstance(event, yaml.AliasEvent) else event.anchor)
        node = super().compose_node(parent, index)
        self._open.pop()
        if node is not None and id(node) not in self._sizes:
            self._sizes[id(node)] = 1 + sum(self._sizes[id(part)] for part in parts_of(node))
            # Ten aliases of ten aliases, ten levels deep, are a small file and ten billion nodes.
            if self._sizes[id(node)] > _MAX_NODES:
                problem = "the file is too long, with what its aliases repeat"
                raise _refusal(self._source.place_of(node), problem)
        return node

    def _problem(self, event: yaml.NodeEvent) -> str:
        # PyYAML's composer recurses: a file of a kilobyte could end the process.
        if len(self._open) >= _MAX_DEPTH:
            return "nested too deeply"
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open:
            return f"the anchor {event.anchor!r} holds itself"
        return _bad_character(event.value) if isinstance(event, yaml.ScalarEvent) else ""


def _refusal(place: Place, problem: str, remedy: str = "") -> LocatedError:
    return LocatedError(Kind.SCHEMA, place, problem, remedy)


def parts_of(node: Node) -> Iterator[Node]:
    """Yield the nodes that a node holds: items, keys and values."""
    for item in node.value if isinstance(node, CollectionNode) else ():
        yield from item if isinstance(item, tuple) else (item,)


def read_source(file: Path) -> tuple[SchemaSource, str]:
    """Read a file's text and its lines.

    Raises:
        HeadraceError: SCHEMA, where it cannot be read or is not UTF-8.
    """
    text = read_text(file, "the schema file", Kind.SCHEMA)
    return source_of(file, text), text


def source_of(file: Path, text: str) -> SchemaSource:
    """Return the lines of a text that stands, or will stand, in a file."""
    # What YAML takes for line ends, and `splitlines` takes more.
    return SchemaSource(file, tuple(re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text)))


def compose(source: SchemaSource, text: str) -> MappingNode:
    """Compose the root mapping of a file that holds one YAML document.

    Raises:
        LocatedError: SCHEMA, with the place of the first text that is not accepted.
    """
    try:
        node = _Composer(source, text).get_single_node()
    except ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        before, code = text[:position], ord(text[position : position + 1] or chr(0))
        place = source.place(before.count("\n"), position - (before.rfind("\n") + 1))
        raise _refusal(place, f"character U+{code:04X} may not stand in YAML", "Remove it.") from error
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(source, error) from error
    except (ValueError, OverflowError) as error:
        problem = "an escape sequence names no character"
        raise _refusal(source.place(0, 0), problem, "Write it plainly.") from error
    if node is None:
        raise _refusal(source.place(0, 0), "the file is empty", "Write version, table, primary_key, fields.")
    if not isinstance(node, MappingNode):
        problem = f"the file holds {describe(node)}, not a mapping"
        raise _refusal(source.place_of(node), problem, "Begin with `version: 1`.")
    return node


def _syntax_error(source: SchemaSource, error: yaml.MarkedYAMLError) -> LocatedError:
    mark = error.problem_mark or error.context_mark
    place = source.place(0, 0) if mark is None else source.at(mark)
    problem = " ".join(str(error.problem or error.context or "not YAML").split())
    if "\\t" in problem:
        return _refusal(place, "a tab cannot indent YAML", "Indent with spaces, two for each level.")
    if "expected a single document" in str(error.context):
        return _refusal(place, "a second document begins", "Write one schema per file, without `---`.")
    return _refusal(place, f"not YAML: {problem}", "Check indentation and quotes.")


def _bad_character(text: str) -> str:
    if "\0" in text:
        return "a text holds a NUL character, which PostgreSQL cannot store"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "a text holds half of a surrogate pair"
    return ""


def kind_of(node: Node) -> str:
    """Return `null`, `bool`, `int`, `float`, `str`, `seq`, `map`, or the tag of something else."""
    tag = str(node.tag)
    return tag.removeprefix(_TAG)


_NAMES = {
    "null": "nothing",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "str": "text",
    "seq": "a list",
    "map": "a mapping",
}


def describe(node: Node) -> str:
    """Describe `node` for messages."""
    return _NAMES.get(kind_of(node), f"the tag {node.tag}")


def scalar(node: Node, *, exact: bool = False) -> Scalar | None:
    """Return the value of a scalar node; with `exact`, the file's text where JSON would not write it so.

    Raises:
        ValueError: not a scalar of a known type, or its tag and its text disagree.
    """
    kind, text = kind_of(node), node.value
    if not isinstance(node, ScalarNode) or kind not in _NAMES or kind in ("seq", "map"):
        raise ValueError(f"expected a single value, found {describe(node)}")
    if kind in ("null", "str"):
        return None if kind == "null" else str(text)
    # A tag in the file may say what its text is not.
    if core_type(text) != kind and not (kind == "float" and core_type(text) == "int"):
        raise ValueError(f"{text!r} is not {_NAMES[kind]}")
    value: Scalar
    match kind:
        case "bool":
            value = text.lower() == "true"
        case "int":
            value = int(text, 0)
        case _:
            value = _float(text, exact=exact)
    # A column of texts may hold `1.10`, and a numeric one more digits than a double.
    return value if not exact or isinstance(value, str) or json.dumps(value) == text else str(text)


def _float(text: str, *, exact: bool) -> float | str:
    if SPECIAL.fullmatch(text):
        name = {"n": "NaN", "i": "Infinity"}[text.lstrip("+-.")[0].lower()]
        shown = "-" + name if text.startswith("-") else name
        if exact:
            return shown
        raise ValueError(f"{shown} has no place in a JSON document")
    number = float(text)
    if exact or math.isfinite(number):
        return number
    raise ValueError(f"{text} is larger than a double")


def json_value(node: Node) -> object:
    """Return the JSON value of a node.

    Raises:
        ValueError: it has no JSON form.
    """
    if isinstance(node, SequenceNode) and kind_of(node) == "seq":
        return [json_value(item) for item in node.value]
    if isinstance(node, MappingNode) and kind_of(node) == "map":
        result: dict[str, object] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, ScalarNode) else ""
            if not name or name in result:
                raise ValueError(f"the key {name!r} is empty, no text, or stands twice")
            result[name] = json_value(value)
        return result
    return scalar(node)
