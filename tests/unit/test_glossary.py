"""The glossary has each word once, in alphabetical order, with one sentence."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/glossary.md"
_ENTRY = re.compile(r"- \*\*(?P<word>[^*]+)\*\*(?: \(also: (?P<also>[^)]+)\))?: (?P<text>.+)")


def entries(page: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Words, other words for the same, and sentences; every line below the introduction belongs to one."""
    found = []
    for line in re.sub(r"\n  +", " ", page[page.index("\n- ") :]).strip().splitlines():
        match = _ENTRY.fullmatch(line)
        assert match is not None, f"no entry: {line}"
        found.append((match["word"], tuple((match["also"] or "").split(", ")), match["text"]))
    return found


def repeated(page: str) -> list[str]:
    """The words that occur twice; case, hyphens and a plural make no other word."""
    words = [name for word, also, _ in entries(page) for name in (word, *also) if name]
    forms = Counter(re.sub(r"[\W_]|s\b", "", word.casefold()) for word in words)
    return [form for form, times in forms.items() if times > 1]


def test_no_word_stands_twice() -> None:
    assert repeated(PAGE.read_text()) == []


@pytest.mark.parametrize(
    "other", ["- **Changes**: Some.", "- **another**: One.\n- **new** (also: position): Two."]
)
def test_a_word_that_stands_twice_is_found(other: str) -> None:
    assert len(repeated(f"{PAGE.read_text()}{other}\n")) == 1


def test_the_words_are_in_alphabetical_order() -> None:
    words = [word.casefold() for word, _, _ in entries(PAGE.read_text())]
    assert words == sorted(words)


def test_each_word_has_one_sentence() -> None:
    sentences = [text for _, _, text in entries(PAGE.read_text())]
    assert [text for text in sentences if not text.endswith(".") or re.search(r"[.!?] [A-Z]", text)] == []


def test_readers_and_contributors_are_led_to_the_glossary() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(docs/reference/glossary.md)" in (ROOT / page).read_text(), page
