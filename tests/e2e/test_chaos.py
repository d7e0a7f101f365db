"""Each fault that `make chaos` knows, once: nothing is lost, nothing stale, and it comes up by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.faults import FAULTS
from chaos.fixtures import FaultyDeployment, open_deployment


@pytest.fixture(scope="module")
def here() -> Iterator[FaultyDeployment]:
    with open_deployment(users=60, seed=1) as one:
        yield one


@pytest.mark.long
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_with_writers(here: FaultyDeployment, name: str) -> None:
    assert FAULTS[name](here), "its moment did not come"
    assert here.settle() == []
