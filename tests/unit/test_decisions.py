"""Every decision has one page of one form, and whoever names a decision names a page that exists."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/decisions"
INDEX = FOLDER / "README.md"
ARCHIVE = FOLDER / "archive.md"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page not in {INDEX, ARCHIVE})
ARCHIVED = re.findall(r"^\| (\d{4}) \|", ARCHIVE.read_text(), re.MULTILINE)
MOST_PAGES = 45
LINES, COLUMNS = 28, 120
"""Of one decision, and of one line without a link."""

_HEAD = re.compile(r"# (?P<title>.+)\n\n(?P<truth>\S(?:.|\n(?!\n))+)\n\n## ")
_DECISION = re.compile(
    r"^## (?P<number>\d{4}): (?P<title>.+)\n\n\*(?P<date>\d{4}-\d\d-\d\d)\.\* (?P<rest>(?:(?!^## ).*\n?)+)",
    re.MULTILINE,
)
_ROW = re.compile(
    r"^\| \[(?P<title>[^\]]+)\]\((?P<file>[^)]+)\) \| (?P<truth>.+) \| (?P<decisions>.+) \|$", re.MULTILINE
)
_NAMED = re.compile(r"\bdecisions? (?P<word>\d+)|\bdecisions/(?P<path>\d+)", re.IGNORECASE)
_LINKED = re.compile(r"\[(?:decision )?(?P<number>\d{4})\]\((?P<file>[\w./-]*)#(?P<anchor>\d{4})[^)]*\)")
_BARE = re.compile(r"(?<!\])\((?P<number>00\d\d)\)")


def decisions(page: Path) -> list[str]:
    """The numbers of a page's decisions, in its order."""
    return [match["number"] for match in _DECISION.finditer(page.read_text())]


NUMBERS = {number for page in PAGES for number in decisions(page)} | set(ARCHIVED)


def wrong_references(text: str) -> list[str]:
    """What names a decision, but not as `decision NNNN` or a link to its section."""
    joined = re.sub(r"\s+(?:# )?", " ", text)
    wrong = [match[0] for match in _BARE.finditer(joined)]
    return wrong + [match[0] for match in _NAMED.finditer(joined) if match["word"] not in NUMBERS]


def files_that_may_refer() -> list[Path]:
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    suffixes = {".py", ".md", ".sql", ".toml"}
    for folder in ("src", "tests", "bench", "docs", "examples"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return [path for path in found if path != Path(__file__)]


@pytest.mark.parametrize(
    "text",
    [
        "a batch waits (decision 8)",
        "Decision 15, 0061",
        "a page that does not exist: decision 9999",
        "broken over lines: decision\n    17.",
        "docs/decisions/0021",
        "docs/decisions/0001-another-slug.md",
        "as it says elsewhere (0061)",
    ],
)
def test_a_reference_of_another_form_or_to_no_page_is_found(text: str) -> None:
    assert len(wrong_references(text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "a batch waits (decision 0012)",
        "[why](decisions/types.md#0040-what-a-value-of-each-type-is)",
        "the decision of 2026, and 18 decisions",
    ],
)
def test_a_reference_to_a_page_is_right(text: str) -> None:
    assert wrong_references(text) == []


def test_every_decision_that_is_named_anywhere_has_a_page() -> None:
    files = files_that_may_refer()
    wrong = {str(file.relative_to(ROOT)): wrong_references(file.read_text()) for file in files}
    assert {file: found for file, found in wrong.items() if found} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_first_what_holds_and_each_decision_has_its_date_and_is_short(page: Path) -> None:
    text = page.read_text()
    assert _HEAD.match(text) is not None, "no head as `# Title`, and one line of what holds today"
    found = list(_DECISION.finditer(text))
    assert len(found) == text.count("\n## "), "a heading that is not `## 0001: Title` and a date"
    for match in found:
        assert dt.date.fromisoformat(match["date"])
        assert "**Context.**" in match["rest"], match["number"]
        assert "**Decision.**" in match["rest"], match["number"]
        assert len(match[0].strip().splitlines()) <= LINES, match["number"]
    assert [line for line in text.splitlines() if len(line) > COLUMNS and "](" not in line] == []


def test_pages_stay_few() -> None:
    assert len([*PAGES, INDEX, ARCHIVE]) <= MOST_PAGES


@pytest.mark.parametrize("page", [*PAGES, INDEX, ARCHIVE], ids=lambda page: page.stem)
def test_a_page_names_others_by_their_number(page: Path) -> None:
    wrong = [
        match[0]
        for match in _LINKED.finditer(page.read_text())
        if match["number"] != match["anchor"]
        or match["number"] not in decisions(FOLDER / (match["file"] or page.name))
    ]
    assert wrong == []


def test_no_number_is_given_twice_also_not_an_archived_one() -> None:
    numbers = Counter([*ARCHIVED, *(number for page in PAGES for number in decisions(page))])
    assert [number for number, times in numbers.items() if times > 1] == []


def test_the_index_lists_every_page_once_as_the_page_says_it() -> None:
    heads = {page: _HEAD.match(page.read_text()) for page in PAGES}
    written = sorted(
        (head["title"], page.name, " ".join(head["truth"].split()), decisions(page))
        for page, head in heads.items()
        if head
    )
    rows = [
        (row["title"], row["file"], row["truth"], re.findall(r"\[(\d{4})\]", row["decisions"]))
        for row in _ROW.finditer(INDEX.read_text())
    ]
    assert sorted(rows) == written
