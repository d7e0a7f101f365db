from pathlib import Path

from headrace.model.type_page import page

PAGE = Path(__file__).parents[3] / "docs/types.md"


def test_the_page_of_types_is_what_the_code_says() -> None:
    """If not: `python -m headrace.model.type_page > docs/types.md`."""
    assert PAGE.read_text() == page(), "python -m headrace.model.type_page > docs/types.md"
