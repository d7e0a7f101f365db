"""Put the pages where the site is built from: links of the repository become links of the site.

A link to a page whose text is the page's file name gets the page's title, or that of the section it leads to.
A link to another file of the repository leads to a copy. Pictures in SVG stand in the page itself, so that
they follow its colours.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from builder import commands, errors, examples, fields, glossary, metrics, options, spark_options, types_page
from builder.markdown import slug
from headrace.errors import Kind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TROUBLESHOOTING = "docs/troubleshooting.md"

GENERATED: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands.page,
    "docs/reference/deployment-file.md": options.page,
    "docs/reference/fields.md": fields.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/spark-options.md": spark_options.page,
    "docs/reference/types.md": types_page.page,
}
"""The pages that are made from code, by their place in the repository; a test compares what is committed."""

FENCE = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\[]*)\]\((?P<target>[^)\s]+)\)")
_LIST = re.compile(r"^((?!- |\d+\. |  |\||#|$).*\S)\n(?=- |1\. )", re.MULTILINE)
"""A list right after a line of text: the site's Markdown wants a blank line between."""
_CODE = re.compile(r"(?<!\[)`HEADRACE_([A-Z_]+)`(?!\])")
_DARK = "@media (prefers-color-scheme: dark) { svg"
_DARK_HERE = '@media screen { [data-md-color-scheme="slate"] svg'
"""When a picture has its dark colours: as the reader's system has, on the site as the reader has chosen."""


_WITH_WORDS = ("docs/tutorials/", "docs/guides/", "docs/explanation/", "docs/index.md", "docs/start.md")
"""Pages that lead to the glossary at the first use of a word."""
_OF_THE_REPOSITORY = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages of the folder above."""


class BrokenLinkError(Exception):
    """A page of the repository refers to a file that is not there."""


def stage(folder: Path) -> None:
    """Write all pages and files of the site into `folder`, which is made anew.

    Raises:
        BrokenLinkError: a page refers to a file that is not there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "images", folder / "images")
    shutil.copytree(Path(__file__).parent / "assets", folder / "assets")
    pages = dict(_pages())
    for source, text in pages.items():
        target = folder / place(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_Stager(source, pages, folder).staged(text))


def place(source: str) -> str:
    """Return where a file of the repository lies on the site."""
    name = source.removeprefix("docs/")
    if source in _OF_THE_REPOSITORY:
        return name.lower()
    return name.replace("README.md", "index.md") if source.startswith("docs/") else f"files/{name}"


def _pages() -> Iterator[tuple[str, str]]:
    """Yield the pages by their place in the repository; that of an error is where it would lie."""
    for name in _OF_THE_REPOSITORY:
        yield name, (ROOT / name).read_text()
    for file in sorted(DOCS.rglob("*.md")):
        source = file.relative_to(ROOT).as_posix()
        text = GENERATED[source]() if source in GENERATED else file.read_text()
        if source == TROUBLESHOOTING:
            head, remedies = errors.read_remedies(text)
            yield source, errors.list_page(head, remedies)
            for remedy in remedies:
                yield f"docs/errors/{remedy.kind.value.lower()}.md", errors.error_page(remedy)
        else:
            text = glossary.with_anchors(text) if source == glossary.PAGE else text
            yield source, text + examples.note(source)


class _Stager:
    """The links of one page."""

    def __init__(self, source: str, pages: dict[str, str], folder: Path) -> None:
        self._source = source
        self._pages = pages
        self._folder = folder
        self._words = glossary.Links(self._relative(place(glossary.PAGE)))

    def staged(self, text: str) -> str:
        """Return the page for the site; code stays as it is."""
        parts, end = [], 0
        for fence in FENCE.finditer(text):
            parts += [self._prose(text[end : fence.start()]), fence[0]]
            end = fence.end()
        return "".join([*parts, self._prose(text[end:])])

    def _prose(self, text: str) -> str:
        text = _LIST.sub(r"\1\n\n", _LINK.sub(self._link, text))
        if self._source.startswith(_WITH_WORDS):
            text = self._words.linked(text)
        if self._source == TROUBLESHOOTING:
            return text
        lines = (
            line if line.startswith("#") else _CODE.sub(self._linked_code, line) for line in text.split("\n")
        )
        return "\n".join(lines)

    def _linked_code(self, match: re.Match[str]) -> str:
        is_known = match[1] in Kind.__members__ and not self._source.endswith(f"errors/{match[1].lower()}.md")
        return f"[{match[0]}]({self._relative(f'errors/{match[1].lower()}.md')})" if is_known else match[0]

    def _link(self, match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if (
            "://" in target
            or not target
            or (self._source == TROUBLESHOOTING and target.startswith("errors/"))
        ):
            return match[0]
        base = TROUBLESHOOTING if self._source.startswith("docs/errors/") else self._source
        found = posixpath.normpath(posixpath.join(posixpath.dirname(base), target))
        if found in self._pages:
            return self._page_link(match["text"], found, anchor)
        file = ROOT / found
        if not file.exists() or file.suffix == ".md":
            raise BrokenLinkError(f"{self._source}: {match[0]}")
        if match["picture"]:
            return self._picture(match["text"], file)
        if file.is_dir():
            return match["text"]
        copy = self._folder / place(found)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        return f"[{match['text']}]({self._relative(place(found))})"

    def _page_link(self, text: str, found: str, anchor: str) -> str:
        if found == TROUBLESHOOTING and anchor.upper().startswith("HEADRACE_"):
            page = f"errors/{anchor.removeprefix('headrace_')}.md"
            return f"[{text}]({self._relative(page)})"
        if posixpath.basename(text) == posixpath.basename(found):
            text = _title(self._pages[found], anchor)
        return f"[{text}]({self._relative(place(found))}{'#' * bool(anchor)}{anchor})"

    def _picture(self, text: str, file: Path) -> str:
        if file.suffix == ".svg" and 'class="follows-colours"' in (drawing := file.read_text()):
            return f'<div class="picture">{drawing.replace(_DARK, _DARK_HERE).strip()}</div>'
        return f"![{text}]({self._relative(place(file.relative_to(ROOT).as_posix()))})"

    def _relative(self, target: str) -> str:
        return posixpath.relpath(target, posixpath.dirname(place(self._source)) or ".")


def _title(page: str, anchor: str) -> str:
    """Return the heading that a link leads to."""
    headings: list[str] = re.findall(r"^#+ (.+)$", FENCE.sub("", page), re.MULTILINE)
    return next((heading for heading in headings if slug(heading) == anchor), headings[0])
