"""Schema files for the tests of their reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec

Load = Callable[[str], IndexSpec]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(text: str) -> IndexSpec:
        file = tmp_path / "users.schema.yml"
        file.write_text(text, encoding="utf-8", newline="")
        return load_schema(file, "users")

    return read
