"""Render the page and its parts from the templates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headrace.status.console.explanation import Explanation
from headrace.status.console.page import Page

PARTS = ("state", "notices", "way", "lag", "slot", "indexes", "tables", "events")
"""The parts of the page that change; each is the content of the element with this id."""

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of a page, as it is served."""

    content: bytes
    content_type: str


def static_files(package: str = __package__) -> Mapping[str, StaticFile]:
    """Return the files that a page loads, by name: those in the folder `static` of its package."""
    found = [file for file in (files(package) / "static").iterdir() if Path(file.name).suffix in _TYPES]
    return {file.name: StaticFile(file.read_bytes(), _TYPES[Path(file.name).suffix]) for file in found}


class Renderer:
    """Renders pages; every value is escaped.

    Args:
        statics: the files that the page loads; their content is part of their address.
        searches: whether documents can be searched for.
    """

    def __init__(self, statics: Mapping[str, StaticFile], *, searches: bool) -> None:
        environment = Environment(
            loader=PackageLoader(__package__ or ""),
            autoescape=True,
            # A name that a template misspells fails in its test; else it would be a blank on the page.
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._parts = {name: environment.get_template(f"{name}.html") for name in PARTS}
        self._page = environment.get_template("page.html")
        self._searches = searches
        contents = (statics[name].content for name in sorted(statics))
        self._version = hashlib.sha256(b"".join(contents)).hexdigest()[:12]

    def parts(self, page: Page) -> dict[str, str]:
        """Render the parts of the page that change."""
        return {name: template.render(page=page) for name, template in self._parts.items()}

    def page(
        self, page: Page, parts: Mapping[str, str], asked: str = "", answer: Explanation | None = None
    ) -> str:
        """Render the whole page around its parts.

        Args:
            page: what the page shows.
            parts: its rendered parts.
            asked: what was searched for.
            answer: what was found; None where nothing was searched for.
        """
        indexes = [row.status.name for row in page.indexes if not row.sink]
        return self._page.render(
            page=page,
            fragments={name: Markup(text) for name, text in parts.items()},  # noqa: S704 - rendered above
            version=self._version,
            searches=self._searches,
            asked=asked,
            answer=answer,
            example=f"{indexes[0]}/42" if indexes else "index/42",
        )
