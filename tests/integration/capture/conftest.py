"""The database of a test, ready to be followed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.capture.following import Source


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    """A database; publication and slot are made by the test, the streams are closed at its end."""
    source = Source(database)
    yield source
    source.close()
