"""Render types of documents as a TypeScript module. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.tools.document_types.json_type import Definition, JsonChoice, TypeSyntax
from headrace.tools.document_types.layout import quote, wrap_paragraphs

_WIDTH = 88
_TYPES = TypeSyntax({"integer": "number", "any": "unknown"}, "Array<{}>", "Record<string, {}>", quote)
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
        lines.append(f"  {key}{optional}: {_TYPES.write(member.type)};")
    return "\n".join([*lines, "}"])


def _comment(text: str, indent: str) -> str:
    """Render a text as JSDoc."""
    # A description is a user's text, and must not end the comment.
    lines = wrap_paragraphs(text.replace("*/", "*\\/"), _WIDTH - len(indent) - 6)
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */"
    return "\n".join([f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in lines), f"{indent} */"])
