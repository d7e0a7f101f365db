"""Which changes of an enum leave documents as they are?"""

from __future__ import annotations

import pytest

from headrace.catalog.fingerprint import describe_changed_types, has_only_more_labels, without_labels

MOOD = "mood: 'low', 'high'"


@pytest.mark.parametrize(
    "now",
    [
        MOOD,
        "mood: 'low', 'high', 'new'",
        "mood: 'new', 'low', 'high'",
        "mood: 'low', 'a; b', 'it''s', 'high'",
        "mood: 'low', E'back\\\\slash', 'high'",
    ],
)
def test_a_label_that_is_added_anywhere_changes_nothing(now: str) -> None:
    assert has_only_more_labels(MOOD, now)
    assert has_only_more_labels(f'{MOOD}; "odd;"": \'x\'', f'{now}; "odd;"": \'x\'')


@pytest.mark.parametrize(
    "now",
    [
        "",
        "mood: 'low'",
        "mood: 'high', 'low'",
        "mood: 'down', 'high'",
        "other: 'low', 'high', 'new'",
        "mood: 'low'', ''high', 'new'",
        f"{MOOD}; other: 'x'",
        f'{MOOD}; collation: "C"',
        "mood: low text, high text",
    ],
)
def test_whatever_else_becomes_of_it_counts(now: str) -> None:
    assert not has_only_more_labels(MOOD, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("generated: 'a'", "generated: 'a', 'b'"),
        ('pair: "it\'s" text', 'pair: "it\'s" text, "it\'s too" text'),
        ("pair: a text", "pair: a integer"),
    ],
)
def test_what_is_no_enum_is_compared_as_it_is(before: str, now: str) -> None:
    assert not has_only_more_labels(before, now)
    assert has_only_more_labels(before, before)
    assert without_labels(before) == before


def test_labels_determine_no_document() -> None:
    assert without_labels("mood: 'low', 'a; b'; pair: a mood, b text") == "mood; pair: a mood, b text"
    assert without_labels("") == ""


PRICE = ["public", "books", "price", "numeric(8,2)", ""]
TITLE = ["public", "books", "title", "text", ""]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            [[*PRICE[:3], "numeric(10,2)", ""], TITLE],
            "column `price` of books changed its type from numeric(8,2) to numeric(10,2)",
        ),
        ([[*PRICE[:4], "of a domain"], TITLE], "column `price` of books changed its type numeric(8,2)"),
        ([TITLE], "it no longer reads column `price` of books"),
        ([PRICE, TITLE, ["sales", "orders", "n", "int4", ""]], "it now reads column `n` of sales.orders"),
    ],
)
def test_a_changed_column_is_named(now: list[list[str]], said: str) -> None:
    assert describe_changed_types([PRICE, TITLE], now) == said
