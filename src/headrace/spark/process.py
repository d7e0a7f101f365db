"""Run a module of PySpark in a Python process of Headrace's own session, which has many.

`python -m headrace.spark.process PRELOADED -m MODULE ARGUMENT…` imports PRELOADED before the daemon of the
workers, which forks them: they start with it, and share it. The daemons of the processes that plan import as
little as they can: each forks one process in the life of a query (decision 0096).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

_DAEMON, _WORKER = "pyspark.daemon", "pyspark.worker"
_WITHOUT_ARROW = {"pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.create_data_source"}
_PLANNING = _WITHOUT_ARROW | {
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
}
"""Modules in whose processes a source runs, and no function of a user."""


def leave_out_pandas() -> None:
    """Let PyArrow find no pandas in this process."""
    from headrace.model import arrow_without_pandas  # noqa: PLC0415 - it imports PyArrow

    arrow_without_pandas.leave_out_pandas()


def leave_out_pandas_while_planning() -> None:
    """Let PyArrow find no pandas where this process only plans a source, in whosever session."""
    main = getattr(sys.modules["__main__"], "__spec__", None)  # a program under pdb has none
    if main is None:
        return
    # The daemon's workers are forked from it, and run the module that it is given.
    runs = sys.argv[1:] if main.name == _DAEMON else [main.name]
    if not _PLANNING.isdisjoint(runs):
        leave_out_pandas()


def import_after_fork(package: str) -> None:
    """Import a package in forked processes only; its modules can be imported here without it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return  # the import says what is wrong
    without_content = ModuleType(package)
    without_content.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = without_content

    def import_package() -> None:
        del sys.modules[package]
        whole = importlib.import_module(package)
        for name, module in list(vars(without_content).items()):
            if isinstance(module, ModuleType):
                setattr(whole, name, module)

    os.register_at_fork(after_in_child=import_package)


def _can_be_planned_late() -> bool:
    """Tell whether the daemon does without the package; those of PySpark 4.0 and 4.1 import parts of it."""
    spec = importlib.util.find_spec("pyspark")
    places = () if spec is None else spec.submodule_search_locations or ()
    return any(Path(place, "sql", "streaming", "datasource.py").exists() for place in places)


def main() -> None:
    """Run the module that the command line names as the main one."""
    preloaded, _, module, *arguments = sys.argv[1:]
    if module == _DAEMON and arguments != [_WORKER]:
        if _can_be_planned_late():
            import_after_fork("pyspark")
        if not set(arguments) <= _WITHOUT_ARROW:
            os.register_at_fork(after_in_child=leave_out_pandas)
    else:
        leave_out_pandas()
    if preloaded and arguments == [_WORKER]:
        importlib.import_module(preloaded)
        gc.freeze()  # a collection would write to each object, which ends the sharing
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
