"""Read a JSON object key by key; note what is wrong, and go on."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.model.suggestion import meant
from headrace.tools.convert.json_lines import JsonNode
from headrace.tools.convert.notes import Notes


class ObjectReader:
    """Reads the values of an object with known keys.

    A value of another type than expected is noted, and counts as absent.

    Args:
        node: the object.
        known: its keys.
        what: what it is, for messages.
        notes: where mistakes go.
    """

    def __init__(self, node: JsonNode, known: Collection[str], what: str, notes: Notes) -> None:
        self.line = node.line
        self._what = what
        self._notes = notes
        self._members: dict[str, JsonNode] = node.value if isinstance(node.value, dict) else {}
        if not isinstance(node.value, dict):
            notes.left(node.line, f"{what} is {node.described}, not an object", "Write { … }.")
        for key in node.repeated:
            notes.differs(
                node.line, f"the key {key!r} stands twice in {what}: the last one counts, as in PGSync"
            )
        for key, member in self._members.items():
            # A key that is misspelt would be missing without a word.
            if key not in known:
                notes.left(member.line, f"unknown key {key!r} in {what}: it is left out", meant(key, known))

    def line_of(self, key: str) -> int:
        """Return the line of the value of `key`, or else of the object."""
        member = self._members.get(key)
        return self.line if member is None else member.line

    def has(self, key: str) -> bool:
        """Return whether `key` is given and not null."""
        return self._members.get(key) is not None and self._members[key].value is not None

    def member(self, key: str) -> JsonNode:
        """Return the node of a key that is there, of any type."""
        return self._members[key]

    def get(self, key: str, kind: type, name: str) -> JsonNode | None:
        """Return the node of `key`, where it is of this type."""
        if not self.has(key):
            return None
        node = self._members[key]
        if type(node.value) is not kind:
            self._wrong(node, f"{key!r} of {self._what}", name)
            return None
        return node

    def text(self, key: str) -> str:
        """Read a text; empty where it is absent."""
        node = self.get(key, str, "text")
        return "" if node is None else str(node.value)

    def object(self, key: str) -> JsonNode | None:
        """Read an object."""
        return self.get(key, dict, "an object")

    def members(self, key: str) -> Iterator[tuple[str, JsonNode]]:
        """Iterate over the members of an object; none where it is absent."""
        node = self.object(key)
        yield from () if node is None else node.value.items()

    def items(self, key: str) -> list[JsonNode]:
        """Read a list; empty where it is absent."""
        node = self.get(key, list, "a list")
        return [] if node is None else list(node.value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts; others are left out."""
        return tuple(str(node.value) for node in self.text_nodes(key))

    def text_nodes(self, key: str) -> list[JsonNode]:
        """Read a list of texts, each with its line; others are left out."""
        found = self.items(key)
        for node in found:
            if not isinstance(node.value, str):
                self._wrong(node, f"an item of {key!r} of {self._what}", "text")
        return [node for node in found if isinstance(node.value, str)]

    def _wrong(self, node: JsonNode, where: str, wanted: str) -> None:
        self._notes.left(
            node.line, f"{where} is {node.described}, not {wanted}: it is left out", f"Write {wanted}."
        )
