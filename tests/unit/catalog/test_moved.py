from __future__ import annotations

import pytest

from headrace.catalog.moved import is_since


@pytest.mark.parametrize(
    ("transaction", "slot_made", "since"),
    [
        (900, 901, False),
        (901, 901, True),
        (950, 901, True),
        (2**32 - 5, 2**32 - 9, True),
        (7, 2**32 - 9, True),
        (2**32 - 20, 7, False),
        (2**32 - 20, 2**32 - 9, False),
    ],
)
def test_what_came_after_the_slot_is_known_around_the_end_of_the_numbers(
    transaction: int, slot_made: int, since: bool
) -> None:
    assert is_since(transaction, slot_made) is since
