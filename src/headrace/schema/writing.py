"""Write names, keys, texts and comments as a schema file spells them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from headrace.model.names import quote_if_needed
from headrace.schema.core_type import core_type
from headrace.schema.tree import Scalar

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_TEXT = re.compile(r"[\w(][\w ()/.;'+&%!?=<>-]*", re.ASCII)
_FLOW_TEXT = re.compile(r"[\w][\w ./+-]*", re.ASCII)
_LONGEST_KEY = 63
_BYTE, _SHORT = 0x100, 0x10000


def write_name(name: str) -> str:
    """Return a PostgreSQL name as the schema language spells it, in YAML."""
    text = quote_if_needed(name)
    return write_word(text) if text == name else quote(text)


def write_names(names: Sequence[str]) -> str:
    """Return one name, or the list of several."""
    return write_name(names[0]) if len(names) == 1 else f"[{', '.join(map(write_name, names))}]"


def write_word(word: str) -> str:
    """Return a document key, or a word of the language, so that YAML reads text."""
    return word if core_type(word) == "str" else f'"{word}"'


def write_text(text: str) -> str:
    """Return a text as the value of a key, on one line."""
    return _quote_unless(_PLAIN_TEXT, text)


def write_scalar(value: Scalar) -> str:
    """Return a value as it stands in a list or mapping of one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    return _quote_unless(_FLOW_TEXT, value)


def _quote_unless(plain: re.Pattern[str], text: str) -> str:
    is_plain = plain.fullmatch(text) and text == text.strip() and core_type(text) == "str"
    return text if is_plain else quote(text)


def quote(text: str) -> str:
    """Return a text in YAML's double quotes; what is not printable is escaped."""
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if character == "\n":
        return "\\n"
    return f"\\x{code:02X}" if code < _BYTE else f"\\u{code:04X}" if code < _SHORT else f"\\U{code:08X}"


def write_comment(text: str) -> str:
    """Return a text as it may stand in a comment, on one line."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in " ".join(text.split())
    )


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """Indent lines."""
    return [" " * by + line if line else "" for line in lines]


def unused_key(name: str, taken: Collection[str]) -> str:
    """Return a document key like `name` that is not taken."""
    base = re.sub(r"[^A-Za-z0-9_]+", "_", name)[: _LONGEST_KEY - 4] or "field"
    base = base if _KEY.fullmatch(base) else f"_{base}"
    key, number = base, 1
    while key in taken:
        number += 1
        key = f"{base}_{number}"
    return key
