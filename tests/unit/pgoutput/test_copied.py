"""Are rows of a binary COPY read as what they are, and broken ones never?"""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.copied import CopiedColumn, decode_copied

COLUMNS = (CopiedColumn("n", 23), CopiedColumn("t", 25), CopiedColumn("p", 1700, (5, 2)))
ONE_AND_A_HALF = struct.pack(">4h2h", 2, 0, 0, 2, 1, 5000)


def row(*fields: bytes | None) -> bytes:
    parts = [
        struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field for field in fields
    ]
    return struct.pack(">h", len(fields)) + b"".join(parts)


ROWS = (row(struct.pack(">i", 7), b"seven", ONE_AND_A_HALF), row(None, None, None), row(None, b"", None))


def test_rows_become_columns() -> None:
    found = decode_copied(MessageBatch.join(ROWS), COLUMNS)
    assert found.to_pydict() == {
        "n": [7, None, None],
        "t": ["seven", None, ""],
        "p": [pa.scalar("1.50").cast(pa.decimal128(5, 2)).as_py(), None, None],
    }
    assert decode_copied(MessageBatch.join([]), COLUMNS).num_rows == 0


@given(st.sampled_from(range(len(ROWS))), st.data())
def test_broken_rows_raise_our_error_or_are_other_rows(which: int, data: st.DataObject) -> None:
    """What lies in a field may be anything; nothing is read beyond it."""
    bytes_ = bytearray(ROWS[which])
    for _ in range(data.draw(st.integers(1, 3))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_copied(MessageBatch.join([*ROWS, bytes(bytes_), *ROWS]), COLUMNS)
    except HeadraceError:
        return
    found.select(["n", "t"]).validate(full=True)  # among decimals a NaN is a number that does not fit
    assert found.slice(0, 3).equals(found.slice(4))


@pytest.mark.parametrize("size", range(len(ROWS[0])))
def test_a_row_that_is_cut_is_an_error(size: int) -> None:
    with pytest.raises(HeadraceError, match="the rows of the database cannot be read"):
        decode_copied(MessageBatch.join([ROWS[1], ROWS[0][:size]]), COLUMNS)


def test_a_text_that_is_not_utf8_is_an_error_that_names_its_column() -> None:
    with pytest.raises(HeadraceError, match="a text in the column t is not UTF-8") as caught:
        decode_copied(MessageBatch.join([row(None, b"\xff", None)]), COLUMNS)
    assert caught.value.kind is Kind.VALUE
