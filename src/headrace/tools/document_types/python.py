"""Render types of documents as a Python module. Pure."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable, Sequence

from headrace.tools.document_types.json_type import (
    Definition,
    JsonChoice,
    JsonObject,
    JsonProperty,
    TypeSyntax,
)
from headrace.tools.document_types.layout import quote, wrap_paragraphs

_WIDTH = 88


def _constant(value: str | int | bool) -> str:
    return f"Literal[{quote(value) if isinstance(value, str) else value}]"


_TYPES = TypeSyntax(
    {"null": "None", "boolean": "bool", "integer": "int", "number": "float", "string": "str", "any": "Any"},
    "list[{}]",
    "dict[str, {}]",
    _constant,
)


def render_module(head: str, parts: Sequence[Definition]) -> str:
    """Render a module; `head` says what it is."""
    body = "\n\n\n".join(_part(part) for part in parts)
    # An import that nothing uses would be a finding of the user's linter.
    used = [name for name in ("Any", "Literal", "TypedDict") if re.search(rf"\b{name}\b", body)]
    imports = f"from typing import {', '.join(used)}\n" if used else ""
    text = f"{_docstring(head, '')}\n\n{imports}\n\n{body}\n"
    # Names come from files and databases: none leaves a broken module.
    compile(text, "types of documents", "exec")
    return text


def _part(part: Definition) -> str:
    if isinstance(part, JsonChoice):
        return _choice(part)
    return _class(part) if part.is_whole and _can_be_class(part.properties) else _dictionary(part)


def _can_be_class(members: Iterable[JsonProperty]) -> bool:
    """Return whether a class can have these keys: they are names, and hide none that its annotations use.

    Python folds compatibility characters in names (ﬁ becomes fi), so a key with one is no name of its own.
    """
    annotations = " ".join(_TYPES.write(member.type) for member in members)
    # What is quoted is a value of a Literal, and no name.
    used = set(re.findall(r"\w+", re.sub(r'"[^"]*"', "", annotations)))
    return all(
        key.isidentifier()
        and key == unicodedata.normalize("NFKC", key)
        and not keyword.iskeyword(key)
        and not key.startswith("__")
        and key not in used
        for key in (member.key for member in members)
    )


def _class(type_: JsonObject) -> str:
    members = type_.properties
    lines = [f"class {type_.name}(TypedDict):"]
    if type_.description:
        lines += [_docstring(type_.description, "    "), *([""] if members else [])]
    for member in members:
        lines.append(f"    {member.key}: {_TYPES.write(member.type)}")
        if member.description:
            lines.append(_docstring(member.description, "    "))
    if not members and not type_.description:
        lines.append("    pass")
    return "\n".join(lines)


def _dictionary(type_: JsonObject) -> str:
    """Render a TypedDict of any keys; what is said of them stands in comments."""
    lines = [
        *(_comment(type_.description, "") if type_.description else []),
        f"{type_.name} = TypedDict(",
        f'    "{type_.name}",',
        "    {",
    ]
    for member in type_.properties:
        entry = f"        {quote(member.key)}: {_TYPES.write(member.type)},"
        comment = _comment(member.description, "        ") if member.description else []
        if len(comment) == 1 and len(entry) + len(comment[0]) <= _WIDTH + 6:
            lines.append(f"{entry}  {comment[0].strip()}")
        else:
            lines += [*comment, entry]
    return "\n".join([*lines, "    },", *([] if type_.is_whole else ["    total=False,"]), ")"])


def _choice(definition: JsonChoice) -> str:
    values = [quote(value) for value in definition.values]
    line = f"{definition.name} = Literal[{', '.join(values)}]"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{definition.name} = Literal[", *(f"    {value}," for value in values), "]"])


def _docstring(text: str, indent: str) -> str:
    # A description is a user's text, and must not end the string.
    escaped = text.replace("\\", "\\\\")
    if '"""' in escaped or escaped.endswith('"'):
        escaped = escaped.replace('"', '\\"')
    first, *more = wrap_paragraphs(escaped, _WIDTH - len(indent) - 6)
    if not more:
        return f'{indent}"""{first}"""'
    return "\n".join([f'{indent}"""{first}', *((indent + line).rstrip() for line in more), f'{indent}"""'])


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}".rstrip() for line in wrap_paragraphs(text, _WIDTH - len(indent) - 2)]
