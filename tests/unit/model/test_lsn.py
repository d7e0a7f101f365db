"""Positions are printed as PostgreSQL prints them, and nothing else is read as one."""

from __future__ import annotations

import pytest

from headrace.model.changes import key_of_id, keys_of_ids
from headrace.model.lsn import format_lsn, parse_lsn


@pytest.mark.parametrize(
    ("text", "number"),
    [("0/0", 0), ("0/16B3748", 0x16B3748), ("16/B374D848", 0x16B374D848), ("FFFFFFFF/FFFFFFFF", 2**64 - 1)],
)
def test_a_position_reads_as_it_prints(text: str, number: int) -> None:
    assert parse_lsn(text) == number
    assert format_lsn(number) == text


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/G", "123456789/0", "0/0/0", "-1/0"])
def test_other_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)


def test_an_id_gives_its_key_back() -> None:
    """A single key is its own id; the parts of a composite one are encoded."""
    assert key_of_id("50%3A:x", 1) == ("50%3A:x",)
    assert key_of_id("a%3Ab:50%25", 2) == ("a:b", "50%")
    assert list(keys_of_ids(["1:2", "3", "4:\0"], 2)) == [("1", "2")]
