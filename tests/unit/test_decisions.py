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
NUMBERS = {page.name[:4] for page in PAGES} | set(ARCHIVED)
LINES, COLUMNS = 25, 120

_HEAD = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\n"
    r"\*\*Status:\*\* (?P<status>accepted) · "
    r"\*\*Date:\*\* (?P<date>\d{4}-\d\d-\d\d)\n\n"
)
_ROW = re.compile(
    r"^\| \[(?P<number>\d+)\]\((?P<file>[^)]+)\) \| (?P<title>.+) \| (?P<status>.+) \| (?P<date>[\d-]+) "
    r"\| (?P<summary>.+) \|$",
    re.MULTILINE,
)
_NAMED = re.compile(
    r"\bdecisions? (?P<word>\d+)|\bdecisions/(?P<path>\d+)(?P<slug>-[\w-]+\.md)?", re.IGNORECASE
)
_LINKED = re.compile(r"\[(?P<number>\d{4})\]\((?P<file>\d{4}-[\w-]+\.md)\)")
_BARE = re.compile(r"(?<!\])\((?P<number>00\d\d)\)")


def wrong_references(text: str) -> list[str]:
    """What names a decision, but not as `decision NNNN`, `docs/decisions/NNNN` or a link to its page."""
    joined = re.sub(r"\s+(?:# )?", " ", text)
    wrong = [match[0] for match in _BARE.finditer(joined)]
    for match in _NAMED.finditer(joined):
        number, slug = match["word"] or match["path"], match["slug"]
        if number not in NUMBERS or (slug is not None and not (FOLDER / f"{number}{slug}").exists()):
            wrong.append(match[0])
    return wrong


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
        "docs/decisions/9999",
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
        "docs/decisions/0021.",
        "[why](decisions/0040-values.md)",
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
def test_a_page_has_number_title_status_and_date_and_is_short(page: Path) -> None:
    text = page.read_text()
    head = _HEAD.match(text)
    assert head is not None, "no head as `# 0001: Title`, status and date"
    assert head["number"] == page.name[:4]
    assert dt.date.fromisoformat(head["date"])
    assert "**Context.**" in text
    assert "**Decision.**" in text
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", [*PAGES, INDEX, ARCHIVE], ids=lambda page: page.stem)
def test_a_page_names_others_by_their_number(page: Path) -> None:
    links = [(match["number"], match["file"]) for match in _LINKED.finditer(page.read_text())]
    wrong = [(number, file) for number, file in links if file[:4] != number or not (FOLDER / file).exists()]
    assert wrong == []


def test_no_number_is_given_twice_also_not_an_archived_one() -> None:
    numbers = Counter([*ARCHIVED, *(page.name[:4] for page in PAGES)])
    assert [number for number, pages in numbers.items() if pages > 1] == []


def test_the_index_lists_every_page_once_as_the_page_says_it() -> None:
    heads = {page.name: _HEAD.match(page.read_text()) for page in PAGES}
    written = sorted((name, *head.group("title", "status", "date")) for name, head in heads.items() if head)
    rows = _ROW.finditer(INDEX.read_text())
    assert sorted(row.group("file", "title", "status", "date") for row in rows) == written
    assert INDEX.read_text().count("\n| [") == len(PAGES)


def test_the_index_says_of_each_decision_one_sentence() -> None:
    summaries = [match["summary"] for match in _ROW.finditer(INDEX.read_text())]
    assert len(set(summaries)) == len(PAGES)
    assert [summary for summary in summaries if not summary.endswith(".") or ". " in summary] == []
