"""Say below a page which tests follow its examples."""

from __future__ import annotations

import tomllib
from pathlib import Path

TESTS: dict[str, dict[str, list[str]]] = tomllib.loads((Path(__file__).parent / "examples.toml").read_text())
"""By page (its place in the repository) and language, the tests that follow the examples."""


def note(source: str) -> str:
    """Return the last lines of a page, or nothing where no test follows it."""
    named = sorted({test for tests in TESTS.get(source, {}).values() for test in tests})
    listed = ", ".join(f"`{test}`" for test in named)
    return f"\n---\n\n*Tests follow the examples of this page: {listed}.*\n" if named else ""
