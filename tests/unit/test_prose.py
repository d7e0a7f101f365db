"""Does the checker of the pages' prose find what a reader stumbles over, and nothing else?"""

from __future__ import annotations

import pytest

from builder.prose import LONGEST, SECTION, findings, sentences

WORDS = {r"\bseeding\b": "backfill"}
HEAD = "# A title\n\n**For readers**: a page.\n\n"


def found(page: str, name: str = "docs/guides/page.md") -> list[str]:
    return [finding.text for finding in findings(name, page, WORDS)]


def test_a_page_of_short_sentences_below_its_audience_is_right() -> None:
    assert (
        found(HEAD + "A row changes. Its documents follow.\n\n```\nseeding " + "word " * 90 + "\n```\n") == []
    )


@pytest.mark.parametrize(
    ("page", "part"),
    [
        (HEAD + "word " * (LONGEST + 1) + ".\n", f"a sentence of {LONGEST + 1} words"),
        (HEAD + f"| a |\n|---|\n| {'word ' * (LONGEST + 1)}|\n", f"a sentence of {LONGEST + 1} words"),
        (HEAD + ("word " * 30 + ". The next. " + "Word " * 39 + ".\n") * 3, "words a sentence on average"),
        (HEAD + "The seeding begins.\n", "'seeding': say backfill"),
        ("# A title\n\nSome text.\n", "whom the page is for"),
        ("Some text.\n", "begins with its title"),
        (HEAD + "A word. " * SECTION, "words below one heading"),
    ],
)
def test_what_a_reader_stumbles_over_is_found(page: str, part: str) -> None:
    assert [text for text in found(page) if part in text] != []


def test_code_links_and_list_items_are_counted_as_they_are_read() -> None:
    page = (
        "# T\n\n- One `a b c` [two words](https://x.example/a/b) here.\n- Another item\n  of it. And one.\n"
    )
    assert [sentence.words for sentence in sentences(page)] == [5, 4, 2]


def test_a_page_of_decisions_needs_no_audience() -> None:
    assert found("# A title\n\nA truth.\n", "docs/decisions/page.md") == []
