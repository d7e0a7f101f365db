"""Edit the text of a schema file in place: what is not edited stays as it is, to the byte. Pure.

YAML's nodes know where they begin and end, so an edit cuts out or inserts lines there. Comments, order and
spelling of everything else are not touched (decision 0101).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from headrace.errors import HeadraceError, Kind
from headrace.schema import language
from headrace.schema.writing import indented
from headrace.schema.yaml_nodes import compose, kind_of, parts_of, source_of

FieldPath = Sequence[str]
"""The document keys that lead to a field; empty for the file itself."""


def add_item(text: str, at: FieldPath, word: str, lines: Sequence[str]) -> str:
    """Add an item to the list under a word: to `fields`, or to `filters`.

    Args:
        text: the schema file.
        at: the field that has the list.
        word: the list's key; added where it is not there.
        lines: the item, of which the first begins with `- `.

    Raises:
        HeadraceError: SCHEMA: there is no such field, or it is written in a way that cannot be edited.
    """
    file = _File(text)
    owner = file.find(at)
    found = _value(owner, word)
    if found is None or kind_of(found[1]) == "null":
        text = text if found is None else _remove_word(file, owner, word)
        return _insert_word(_File(text), at, word, [f"{word}:", *indented(lines)])
    key, items = found
    if isinstance(items, SequenceNode) and not items.value and not owner.flow_style:
        block = "".join(f"\n{line}" for line in indented(lines, key.start_mark.column + 2))
        return text[: file.end(key)] + ":" + block + text[file.end(items) :]
    if not isinstance(items, SequenceNode) or items.flow_style:
        raise _by_hand(items, f"{word!r} is written on one line")
    return file.insert_lines(file.end(items), indented(lines, items.start_mark.column))


def remove_item(text: str, at: FieldPath, word: str, number: int) -> str:
    """Remove an item of the list under a word; the comments above it stay.

    Raises:
        HeadraceError: SCHEMA, as `add_item`.
    """
    file = _File(text)
    owner = file.find(at)
    found = _value(owner, word)
    if found is None or not isinstance(found[1], SequenceNode) or number >= len(found[1].value):
        raise _not_there([*at, word])
    key, items = found
    if len(items.value) == 1 and word != "fields":
        return _remove_word(file, owner, word)
    item = items.value[number]
    if items.flow_style:
        raise _by_hand(items, f"{word!r} is written on one line")
    kept = file.cut_lines(item.start_mark.index, file.end(item))
    if len(items.value) > 1:
        return kept
    colon = text.index(":", file.end(key)) + 1
    return f"{kept[:colon]} []{kept[colon:]}"


def remove_field(text: str, at: FieldPath) -> str:
    """Remove a field with everything in it.

    Raises:
        HeadraceError: SCHEMA, as `add_item`.
    """
    *above, key = at
    keys = _File(text).keys(above)
    if key not in keys:
        raise _not_there(at)
    return remove_item(text, above, "fields", keys.index(key))


def set_word(text: str, at: FieldPath, word: str, value: str | None) -> str:
    """Set a key of a field, or of the file, to a value of one line; None removes the key.

    Raises:
        HeadraceError: SCHEMA, as `add_item`.
    """
    file = _File(text)
    owner = file.find(at)
    found = _value(owner, word)
    if value is None:
        return text if found is None else _remove_word(file, owner, word)
    if found is None:
        return _insert_word(file, at, word, [f"{word}: {value}"])
    key, old = found
    begin = text.index(":", file.end(key)) + 1
    if isinstance(old, ScalarNode) and old.value and old.style not in {"|", ">"}:
        return text[: old.start_mark.index] + value + text[file.end(old) :]
    return f"{text[:begin]} {value}{text[max(begin, file.end(old)) :]}"


class _File:
    """A schema file's text with its nodes.

    Raises:
        HeadraceError: SCHEMA: the text is not YAML, or uses aliases, whose nodes stand elsewhere.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = compose(source_of(Path("schema"), text), text)
        seen: set[int] = set()
        for node in _walk(self.root):
            if id(node) in seen:
                raise _by_hand(node, "what is written here is used again by an alias")
            seen.add(id(node))

    def find(self, at: FieldPath) -> MappingNode:
        """Return the mapping of a field."""
        owner = self.root
        for depth, key in enumerate(at):
            fields = dict(self._fields(owner))
            if key not in fields:
                raise _not_there(at[: depth + 1])
            owner = fields[key]
        return owner

    def keys(self, at: FieldPath) -> list[str]:
        """Return the document keys of the fields below a field."""
        return [key for key, _ in self._fields(self.find(at))]

    def _fields(self, owner: MappingNode) -> Iterator[tuple[str, MappingNode]]:
        found = _value(owner, "fields")
        for item in found[1].value if found is not None and isinstance(found[1], SequenceNode) else ():
            # What is no field keeps its place in the list.
            words = item.value if isinstance(item, MappingNode) else ()
            tags = [value for key, value in words if key.value in language.TAGS]
            yield (str(tags[0].value).strip() if tags else ""), item

    def end(self, node: Node) -> int:
        """Return where the text of a node ends; PyYAML's mark of a block stands before what follows."""
        if isinstance(node, CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return max(map(self.end, last)) if isinstance(last, tuple) else self.end(last)
        end: int = node.end_mark.index
        if isinstance(node, ScalarNode) and node.style in {"|", ">"}:
            return len(self.text[:end].rstrip())
        return end

    def insert_lines(self, after: int, lines: Sequence[str]) -> str:
        """Return the text with lines after the one in which `after` stands."""
        newline = self.text.find("\n", after)
        head = f"{self.text}\n" if newline < 0 else self.text[: newline + 1]
        return head + "".join(f"{line}\n" for line in lines) + self.text[len(head) :]

    def cut_lines(self, begin: int, end: int) -> str:
        """Return the text without the lines from that of `begin` to that of `end`."""
        first = self.text.rfind("\n", 0, begin) + 1
        newline = self.text.find("\n", end)
        last = len(self.text) if newline < 0 else newline + 1
        head, tail = self.text[:first], self.text[last:]
        if head.endswith("\n\n") and (tail.startswith("\n") or not tail):
            head = head[:-1]  # of two empty lines around what was cut out one is enough
        return head + tail


def _value(owner: MappingNode, word: str) -> tuple[Node, Any] | None:
    return next(((key, value) for key, value in owner.value if key.value == word), None)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for part in parts_of(node):
        yield from _walk(part)


def _insert_word(file: _File, at: FieldPath, word: str, lines: Sequence[str]) -> str:
    """Add a key: before `fields`, which is long, or at the end."""
    owner = file.find(at)
    if owner.flow_style:
        raise _by_hand(owner, f"the field that gets {word!r} is written on one line")
    words = [key.value for key, _ in owner.value]
    place = words.index("fields") if "fields" in words[1:] else len(words)
    key, value = owner.value[place - 1]
    return file.insert_lines(
        max(file.end(key), file.end(value)), indented(lines, owner.value[0][0].start_mark.column)
    )


def _remove_word(file: _File, owner: MappingNode, word: str) -> str:
    if owner.flow_style:
        raise _by_hand(owner, f"the field that loses {word!r} is written on one line")
    key, value = next(pair for pair in owner.value if pair[0].value == word)
    return file.cut_lines(key.start_mark.index, max(file.end(key), file.end(value)))


def _by_hand(node: Node, why: str) -> HeadraceError:
    line = node.start_mark.line + 1
    return HeadraceError(Kind.SCHEMA, f"line {line}: {why}", "Edit the text itself.")


def _not_there(at: FieldPath) -> HeadraceError:
    return HeadraceError(
        Kind.SCHEMA, f"the schema file has no field {'.'.join(at)}", "It has changed meanwhile: look again."
    )
