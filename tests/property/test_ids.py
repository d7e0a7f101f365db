"""An id that is formed as the contract says leads back to its key, whatever the key's text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.changes import key_of_id

PARTS = st.lists(st.text(), min_size=2, max_size=4)


def formed(parts: list[str]) -> str:
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


@given(PARTS)
def test_a_composite_id_leads_back_to_its_key(parts: list[str]) -> None:
    assert key_of_id(formed(parts), len(parts)) == tuple(parts)


@given(PARTS, PARTS)
def test_two_keys_never_share_an_id(left: list[str], right: list[str]) -> None:
    """Drasi's hole 6: joined by `_`, composite ids collide."""
    assert (formed(left) == formed(right)) == (left == right)
