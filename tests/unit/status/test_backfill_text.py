"""What a person reads of a backfill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.status.backfill_text import describe_backfill
from headrace.status.board import IndexStatus

BEGUN = IndexStatus("users", building="users_ab_2", ranges_total=8)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (IndexStatus("users"), "0 documents"),
        (replace(BEGUN, documents=1), "1 document, none of 8 ranges finished"),
        (
            replace(BEGUN, documents=12_000, ranges_done=3, documents_per_second=1240.0, seconds_left=12.0),
            "12,000 documents, 3 of 8 ranges finished, 1,240/s, about 12.0 s left",
        ),
        (
            replace(BEGUN, documents=2, ranges_total=1, documents_per_second=0.2, seconds_left=0.02),
            "2 documents, the only range is not finished",
        ),
        (
            replace(BEGUN, documents=9, ranges_done=8, documents_per_second=0.0, seconds_left=0.0),
            "9 documents, all 8 ranges are finished, ids are being compared",
        ),
        (
            replace(BEGUN, ranges_done=1, ranges_total=1),
            "0 documents, the only range is finished, ids are being compared",
        ),
    ],
)
def test_it_says_what_is_known_and_nothing_that_rounds_to_nothing(index: IndexStatus, text: str) -> None:
    assert describe_backfill(index) == text
