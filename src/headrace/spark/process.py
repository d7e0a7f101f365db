"""Run a module of PySpark in a Python process of Headrace's own session, which has many.

`python -m headrace.spark.process PRELOADED -m MODULE ARGUMENT…` imports PRELOADED before the daemon of the
workers, which forks them: they start with it, and share it (decision 0096).
"""

from __future__ import annotations

import gc
import importlib
import runpy
import sys

from headrace.model.arrow_without_pandas import leave_out_pandas

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


if __name__ == "__main__":
    main()
