from __future__ import annotations

from pathlib import Path

from headrace.datasources.option_page import page

PAGE = Path(__file__).parents[3] / "docs" / "spark-options.md"


def test_the_page_of_options_is_what_the_code_takes() -> None:
    """If not: `python -m headrace.datasources.option_page > docs/spark-options.md`."""
    assert PAGE.read_text() == page(), "python -m headrace.datasources.option_page > docs/spark-options.md"
