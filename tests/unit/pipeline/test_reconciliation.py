"""What only one side has is found and mended, in parts where it is much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.assembly.digests import Buckets, bucket_of, buckets_of
from headrace.pipeline import reconciliation
from headrace.pipeline.reconciliation import reconcile


class Database:
    """The ids of some rows."""

    def __init__(self, ids: set[str]) -> None:
        self._ids = ids

    def buckets(self) -> Buckets:
        return buckets_of(self._ids)

    def of(self, buckets: Sequence[int]) -> Iterator[str]:
        return (one for one in self._ids if bucket_of(one) in buckets)


IDS = st.sets(st.text(max_size=3), max_size=60)


@given(IDS, IDS, IDS)
def test_what_one_side_lacks_is_looked_at_again(both: set[str], there: set[str], endpoints: set[str]) -> None:
    mended: list[str] = []
    database = Database(both | there)
    found = reconcile(database, lambda: both | endpoints, mended.extend)  # type: ignore[arg-type]
    assert set(mended) == (both | there) ^ (both | endpoints)
    assert found == len(mended)


def test_much_is_mended_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "_IDS_AT_ONCE", 10)
    parts: list[list[str]] = []
    missing = {str(one) for one in range(100)}
    assert reconcile(Database(missing), lambda: (), parts.append) == 100  # type: ignore[arg-type]
    assert len(parts) >= 10
    assert set().union(*parts) == missing
