"""Write Markdown: tables, and cells that hold what a table cannot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return `text` as one line that stands in a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"|{'|'.join(_padded(line))}|" for line in lines) + "\n"


def _padded(line: Sequence[str]) -> list[str]:
    return [text if text == "---" else f" {text} " if text else " " for text in line]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as sites of Git hosts and ours make it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
