"""Numbers of things as a person writes them."""

from __future__ import annotations

import pytest

from headrace.model.units import are, quantity


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "document", "0 documents"),
        (1, "document", "1 document"),
        (12_000, "document", "12,000 documents"),
        (1, "index", "1 index"),
        (2, "index", "2 indexes"),
        (2, "key batch", "2 key batches"),
        (2, "nested document", "2 nested documents"),
    ],
)
def test_a_number_and_its_noun_agree(count: int, noun: str, text: str) -> None:
    assert quantity(count, noun) == text


def test_a_number_and_its_verb_agree() -> None:
    assert [are(count) for count in (0, 1, 2)] == ["are", "is", "are"]
