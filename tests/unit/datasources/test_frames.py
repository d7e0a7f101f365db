"""What the functions over DataFrames ask for before a query begins."""

from __future__ import annotations

import pytest

from headrace.datasources import frames
from headrace.errors import HeadraceError, Kind


def test_typed_rows_without_pandas_are_refused_before_a_slot_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark itself says so in the first batch, in a long trace."""
    monkeypatch.setattr(frames, "find_spec", lambda _: None)
    with pytest.raises(HeadraceError, match="pandas") as caught:
        frames.for_each_table(lambda *_: None)
    assert caught.value.kind is Kind.DEPENDENCY
