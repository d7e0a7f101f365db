"""Write llms.txt and llms-full.txt: the documentation as text for programs that read it (llmstxt.org)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builder.stage import FENCE

_PICTURE = re.compile(r"<div class=\"picture\">.*?</div>|!\[[^\]]*\]\([^)]*\)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_LEFT_OUT = ("decisions/", "changelog.md")
"""Pages that say why and when, which the text of all pages lacks."""


def write(pages: Path, site: Path, configuration: str) -> None:
    """Write both files, and the pages that the first links to, beside the site's own.

    Args:
        pages: the staged pages.
        site: the built site.
        configuration: of the site, with its navigation.
    """
    project = tomllib.loads(configuration)["project"]
    sections = [
        (name, list(_entries(entries, pages))) for part in project["nav"] for name, entries in part.items()
    ]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    for name, entries in sections:
        lines += [f"## {name}", ""]
        lines += [f"- [{title}]({file}): {_summary(pages / file)}".rstrip(": ") for title, file in entries]
        lines += [""]
    (site / "llms.txt").write_text("\n".join(lines))
    files = [file for _, entries in sections for _, file in entries]
    for file in files:
        copy = site / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_text(pages / file))
    whole = [_text(pages / file) for file in files if not file.startswith(_LEFT_OUT)]
    (site / "llms-full.txt").write_text("\n\n".join(whole))


def _entries(part: Any, pages: Path) -> Iterator[tuple[str, str]]:
    """Yield title and file of each page of a part of the navigation, in its order."""
    if isinstance(part, str):
        yield _heading(pages / part), part
        return
    for entry in part:
        if isinstance(entry, str):
            yield _heading(pages / entry), entry
            continue
        for title, inner in entry.items():
            if isinstance(inner, str):
                yield title, inner
            else:
                yield from _entries(inner, pages)


def _heading(page: Path) -> str:
    return page.read_text().partition("\n")[0].lstrip("# ")


def _summary(page: Path) -> str:
    """Return the first sentence of a page's prose."""
    paragraphs = (" ".join(part.split()) for part in FENCE.sub("", _text(page)).split("\n\n"))
    prose = (part for part in paragraphs if part and part[0] not in "#|`<-!:{" and not part[0].isdigit())
    first = _LINK.sub(r"\1", next(prose, ""))
    return re.split(r"(?<=\.)\s", first.replace("**", ""), maxsplit=1)[0]


def _text(page: Path) -> str:
    return _PICTURE.sub("", page.read_text()).strip() + "\n"
