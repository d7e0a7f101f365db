"""Each fault that `make chaos` knows, once: nothing is lost, nothing stale, and it comes up by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.faults import FAULTS
from chaos.ground import Ground, ground


@pytest.fixture(scope="module")
def here() -> Iterator[Ground]:
    with ground(users=60, seed=1) as one:
        yield one


@pytest.mark.long
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_with_writers(here: Ground, name: str) -> None:
    assert FAULTS[name](here), "its moment did not come"
    assert here.settle() == []
