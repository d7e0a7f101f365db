"""Render types of documents as a TypeScript module. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

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


def render_module(head: str, parts: Sequence[Definition]) -> str:
    """Render a module; `head` says what it is."""
    return "\n\n".join([_comment(head, ""), *(_part(part) for part in parts)]) + "\n"


def _part(part: Definition) -> str:
    if isinstance(part, JsonChoice):
        return (
            f"export type {part.name} =\n" + "\n".join(f"  | {quote(value)}" for value in part.values) + ";"
        )
    lines = [_comment(part.description, "")] if part.description else []
    lines.append(f"export interface {part.name} {{")
    optional = "" if part.is_whole else "?"
    for member in part.properties:
        lines += [_comment(member.description, "  ")] if member.description else []
        key = member.key if _NAME.fullmatch(member.key) else quote(member.key)
        lines.append(f"  {key}{optional}: {_type(member.type)};")
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
