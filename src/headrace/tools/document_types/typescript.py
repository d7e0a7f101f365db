"""Render types of documents as a TypeScript module. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from headrace.tools.document_types.json_type import (
    Definition,
    JsonChoice,
    JsonConstant,
    JsonList,
    JsonMap,
    JsonObject,
    JsonScalar,
    JsonType,
    JsonUnion,
)
from headrace.tools.document_types.layout import quote, wrap_paragraphs
from headrace.tools.document_types.queries import IndexFilter

_WIDTH = 88
_SCALARS = {
    "null": "null",
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": "string",
    "any": "unknown",
}
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


def render_module(head: str, parts: Sequence[Definition | IndexFilter]) -> str:
    """Render a module; `head` says what it is."""
    return "\n\n".join([_comment(head, ""), *(_part(part) for part in parts)]) + "\n"


def _part(part: Definition | IndexFilter) -> str:
    match part:
        case JsonChoice(name, values):
            return f"export type {name} =\n" + "\n".join(f"  | {quote(value)}" for value in values) + ";"
        case IndexFilter():
            fields = ((field.path, field.type, field.description) for field in part.fields)
            return _interface(part.name, fields, part.description, optional="?")
        case JsonObject():
            members = ((member.key, member.type, member.description) for member in part.properties)
            return _interface(part.name, members, part.description)


def _interface(
    name: str, members: Iterable[tuple[str, JsonType, str]], description: str, optional: str = ""
) -> str:
    lines = [_comment(description, "")] if description else []
    lines.append(f"export interface {name} {{")
    for key, type_, said in members:
        lines += [_comment(said, "  ")] if said else []
        lines.append(f"  {key if _NAME.fullmatch(key) else quote(key)}{optional}: {_type(type_)};")
    return "\n".join([*lines, "}"])


def _type(type_: JsonType) -> str:
    match type_:
        case JsonScalar(name):
            return _SCALARS[name]
        case JsonConstant(value):
            return json.dumps(value, ensure_ascii=False)
        case JsonList(element):
            return f"Array<{_type(element)}>"
        case JsonMap(value):
            return f"Record<string, {_type(value)}>"
        case JsonUnion(types):
            return " | ".join(_type(alternative) for alternative in types)
        case JsonObject(name=name) | JsonChoice(name=name):
            return name


def _comment(text: str, indent: str) -> str:
    """Render a text as JSDoc."""
    # A description is a user's text, and must not end the comment.
    lines = wrap_paragraphs(text.replace("*/", "*\\/"), _WIDTH - len(indent) - 6)
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */"
    return "\n".join([f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in lines), f"{indent} */"])
