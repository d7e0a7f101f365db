"""Run a module of PySpark in a Python process of Headrace's own session, which has many.

`python -m headrace.spark.process PRELOADED -m MODULE ARGUMENT…` imports PRELOADED before the daemon of the
workers, which forks them: they start with it, and share it (decision 0096).
"""

from __future__ import annotations

import gc
import importlib
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa

_WORKER = "pyspark.worker"


def main() -> None:
    """Run the module that the command line names as the main one."""
    preloaded, _, module, *arguments = sys.argv[1:]
    leave_out_pandas()
    if preloaded and arguments == [_WORKER]:
        importlib.import_module(preloaded)
        gc.freeze()  # a collection would write to each object, which ends the sharing
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def leave_out_pandas() -> None:
    """Keep PyArrow from importing pandas, which takes 0.2 s and 35 MB, to recognise values of pandas.

    PyArrow looks for it once. Code that imports pandas itself still can; PyArrow then does not convert its
    values.
    """
    if "pandas" in sys.modules:
        return
    hidden = _HiddenPandas()
    sys.meta_path.insert(0, hidden)
    pa.array([0])
    sys.meta_path.remove(hidden)


class _HiddenPandas(MetaPathFinder):
    """Finds every module but pandas."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - it too
    ) -> None:
        """Let the other finders look for `fullname`.

        Raises:
            ImportError: it is pandas.
        """
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


if __name__ == "__main__":
    main()
