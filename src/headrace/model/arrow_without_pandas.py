"""Keep PyArrow from importing pandas, which takes 0.2 s and 35 MB, only to recognise values of pandas.

PyArrow looks for pandas once, at its first conversion. In processes that are Headrace's own it does not find
it; before code of a user is loaded there, it does.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa


def leave_out_pandas() -> None:
    """Let PyArrow find no pandas in this process, unless it has been imported."""
    if "pandas" in sys.modules:
        return
    hidden = _HiddenPandas()
    sys.meta_path.insert(0, hidden)
    pa.array([0])
    sys.meta_path.remove(hidden)


def take_in_pandas() -> None:
    """Let PyArrow convert values of pandas in this process, where pandas is installed."""
    with contextlib.suppress(ImportError):
        pa.table({}).to_pandas()  # what needs pandas looks for it again


class _HiddenPandas(MetaPathFinder):
    """Finds no pandas, and leaves every other module to the finders after it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - it too
    ) -> None:
        """Look for a module.

        Raises:
            ModuleNotFoundError: it is pandas.
        """
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
