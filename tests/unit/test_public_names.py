"""Are the public names found by completion, and is the package light until one is asked for?"""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import headrace
import headrace.spark
import headrace.testing

HEAVY = ("pyspark", "psycopg", "pyarrow", "pydantic", "starlette", "rich", "deltalake")


@pytest.mark.parametrize("module", [headrace, headrace.spark, headrace.testing])
def test_every_public_name_is_listed_and_there(module: ModuleType) -> None:
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Pipelin'"):
        _ = module.Pipelin


def test_importing_and_completing_load_nothing_heavy() -> None:
    program = f"import sys, headrace; dir(headrace); print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
