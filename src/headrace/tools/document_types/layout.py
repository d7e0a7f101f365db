"""Lay out the texts of generated modules."""

from __future__ import annotations

import json
import textwrap


def wrap_paragraphs(text: str, width: int) -> list[str]:
    """Wrap each paragraph of a text between words; an empty line separates two. Of spaces alone, one line."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [""] if lines else []
        joined = " ".join(paragraph.split())
        lines += textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def quote(text: object) -> str:
    """Quote a text as Python and TypeScript both read it; another value is written as in JSON."""
    return json.dumps(text, ensure_ascii=False)
