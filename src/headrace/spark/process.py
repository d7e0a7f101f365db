"""Run a module of PySpark in a Python process of Headrace's own session, which has many.

`python -m headrace.spark.process PRELOADED -m MODULE ARGUMENT…` imports PRELOADED before the daemon of the
workers, which forks them: they start with it, and share it (decision 0096).
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys

_DAEMON, _WORKER = "pyspark.daemon", "pyspark.worker"


def leave_out_pandas() -> None:
    """Let PyArrow find no pandas in this process."""
    from headrace.model import arrow_without_pandas  # noqa: PLC0415 - it imports PyArrow

    arrow_without_pandas.leave_out_pandas()


def main() -> None:
    """Run the module that the command line names as the main one."""
    preloaded, _, module, *arguments = sys.argv[1:]
    if module == _DAEMON and arguments != [_WORKER]:
        os.register_at_fork(after_in_child=leave_out_pandas)  # a daemon itself needs no PyArrow
    else:
        leave_out_pandas()
    if preloaded and arguments == [_WORKER]:
        importlib.import_module(preloaded)
        gc.freeze()  # a collection would write to each object, which ends the sharing
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
