"""Lead each page of the site to the glossary, where it uses a word of it for the first time."""

from __future__ import annotations

import re

from builder.markdown import slug

PAGE = "docs/reference/glossary.md"
WORDS = (
    "alias",
    "backfill",
    "checkpoint",
    "degraded",
    "fence",
    "gap",
    "generation",
    "junction",
    "lag",
    "lease",
    "publication",
    "quarantine",
    "raw filter",
    "replica identity",
    "root table",
    "secondary sink",
    "sink",
    "slot",
    "snapshot",
    "spool",
    "stall",
    "standby",
    "TOAST",
    "transform",
    "WAL",
)
"""The words of the glossary that a reader may not know; a page that has many links leads nowhere."""

_ENTRY = re.compile(r"^- \*\*([^*]+)\*\*", re.MULTILINE)
_LEFT_ALONE = re.compile(r"(`+[^`]*`+|!?\[[^\]]*\]\([^)]*\)|<[^>]+>)")
"""Code, links, pictures and tags."""


def with_anchors(page: str) -> str:
    """Return the glossary's page with an anchor for each word."""
    return _ENTRY.sub(lambda match: f"- **{match[1]}**{{ #{slug(match[1])} }}", page)


class Links:
    """The links of one page to the glossary: of each word, the first time that prose uses it."""

    def __init__(self, glossary: str) -> None:
        """Link to `glossary`, the page's address as seen from the page that links."""
        self._glossary = glossary
        self._left = {
            word: re.compile(rf"\b{re.escape(word).replace(' ', '[ ]')}s?\b", re.IGNORECASE) for word in WORDS
        }

    def linked(self, prose: str) -> str:
        """Return a part of the page with links; headings, tables and the line on the audience stay."""
        return "\n\n".join(
            part if part.lstrip("\n").startswith(("#", "|", "!", "<", "**For ")) else self._paragraph(part)
            for part in prose.split("\n\n")
        )

    def _paragraph(self, paragraph: str) -> str:
        parts = _LEFT_ALONE.split(paragraph)
        for number in range(0, len(parts), 2):
            parts[number] = self._text(parts[number])
        return "".join(parts)

    def _text(self, text: str) -> str:
        found: list[tuple[int, int, str]] = []
        for word, pattern in list(self._left.items()):
            match = pattern.search(text)
            if match and not any(match.start() < end and start < match.end() for start, end, _ in found):
                found.append((match.start(), match.end(), word))
                del self._left[word]
        for start, end, word in sorted(found, reverse=True):
            text = f"{text[:start]}[{text[start:end]}]({self._glossary}#{slug(word)}){text[end:]}"
        return text
