"""Hold the pages to plain words: length of sentences, words that readers do not know, a heading every screen.

`make lint` runs it on every page. `docs/builder/prose.toml` lists the words.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).parent / "prose.toml"

AVERAGE, LONGEST = 25, 40
"""Words of a sentence: on average over a page, and at most."""
SECTION = 330
"""Words of prose below one heading, which is about a screen."""
OTHER_FORM = ("docs/decisions/", "docs/index.md", "README.md", "CHANGELOG.md", "SECURITY.md")
"""Pages that are for everyone, and decisions, which a test holds to a form of their own."""
LISTS = ("docs/decisions/", "docs/reference/glossary.md")
"""Pages without a heading every screen: a test bounds each decision, and a glossary is one list."""

_FENCE = re.compile(r"^( *)(```+).*?^\1\2$\n?", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*]*(?:[A-Z0-9_]|code\b))")
_AUDIENCE = re.compile(r"\*\*For [^*]+\*\*")


@dataclass(frozen=True)
class Finding:
    """What is wrong on a page, and at which line."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Sentence:
    """A sentence, the line that its paragraph begins at, and whether it stands in a table."""

    text: str
    line: int
    in_table: bool = False

    @property
    def words(self) -> int:
        """How many words it has; an inline code is one."""
        return len(re.findall(r"\S*\w\S*", self.text))


def sentences(page: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page: of paragraphs, list items and cells of tables."""
    for line, text, in_table in _paragraphs(page):
        plain = _LINK.sub(r"\1", _CODE.sub("code", text))
        for sentence in _END.split(plain):
            if sentence.strip():
                yield Sentence(sentence.strip(), line, in_table)


def _paragraphs(page: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it is a table's cell, for each paragraph, list item and cell."""
    start, lines = 0, list[str]()
    for number, line in enumerate([*_without_fences(page).splitlines(), ""], 1):
        is_table, is_item = line.startswith("|"), _ITEM.match(line)
        if lines and (not line.strip() or line.startswith("#") or is_table or is_item):
            yield start, " ".join(lines), False
            lines = []
        if is_table:
            for cell in re.split(r"(?<!\\)\|", line.strip("|")):
                yield number, cell.strip(), True
        elif line.strip() and not line.startswith("#"):
            start = start if lines else number
            lines.append(_ITEM.sub("", line).strip())


def _without_fences(page: str) -> str:
    """Return the page with blank lines in place of code and comments."""
    blank = lambda match: "\n" * match[0].count("\n")  # noqa: E731
    return _COMMENT.sub(blank, _FENCE.sub(blank, page))


def findings(name: str, page: str, words: dict[str, str]) -> Iterator[Finding]:
    """Yield what a page does against the rules."""
    found = list(sentences(page))
    prose = [sentence for sentence in found if not sentence.in_table]
    for sentence in found:
        if sentence.words > LONGEST:
            yield Finding(name, sentence.line, f"a sentence of {sentence.words} words: {sentence.text[:60]}…")
        for word, instead in words.items():
            if match := re.search(word, sentence.text, re.IGNORECASE):
                yield Finding(name, sentence.line, f"'{match[0]}': say {instead}")
    average = sum(sentence.words for sentence in prose) / max(len(prose), 1)
    if average > AVERAGE:
        yield Finding(name, 1, f"{average:.0f} words a sentence on average; {AVERAGE} at most")
    yield from _headings(name, page)


def _headings(name: str, page: str) -> Iterator[Finding]:
    lines = _without_fences(page).splitlines()
    if not lines or not lines[0].startswith("# "):
        yield Finding(name, 1, "a page begins with its title")
        return
    if not name.startswith(OTHER_FORM) and not any(map(_AUDIENCE.match, lines[1:4])):
        yield Finding(name, 2, "say below the title whom the page is for: **For …**")
    heading, words = 1, 0
    for number, line in enumerate([*lines, "# end"], 1):
        if line.startswith("#"):
            if words > SECTION and not name.startswith(LISTS):
                yield Finding(name, heading, f"{words} words below one heading; {SECTION} at most")
            heading, words = number, 0
        elif not line.startswith("|"):
            words += len(line.split())


def pages() -> list[Path]:
    """Return the pages of the documentation, in the repository's folder and in docs/."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def main() -> int:
    """Print every finding; return 1 if there is one."""
    words = tomllib.loads(RULES.read_text())["words"]
    found = [
        finding
        for page in pages()
        for finding in findings(str(page.relative_to(ROOT)), page.read_text(), words)
    ]
    for finding in found:
        print(finding, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
