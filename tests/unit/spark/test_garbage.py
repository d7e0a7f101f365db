"""Does PySpark's collection after a task walk the imported modules?"""

from __future__ import annotations

import subprocess
import sys

_READS = """
import gc
from headrace.datasources.options import read_options
from headrace.datasources.partitions import ChangePartition, read_part
from headrace.datasources.source_options import CdcOptions
from headrace.model.changes import to_ipc

class Ring:
    def __init__(self):
        self.itself = self

given = {"url": "postgresql://localhost/a", "slot": "a", "tables": "a, b"}
options = read_options(CdcOptions, given, "postgres_cdc")
for _ in range(2):
    assert not list(read_part(options, None, ChangePartition(to_ipc([]))))
    print(len(gc.get_objects()))
    Ring()
    print(sum(type(object_) is Ring for object_ in gc.get_objects()))
    gc.collect()
    print(sum(type(object_) is Ring for object_ in gc.get_objects()))
"""


def test_a_collection_after_a_task_walks_what_came_after_the_imports_only() -> None:
    done = subprocess.run([sys.executable, "-c", _READS], capture_output=True, text=True, check=True)
    walked, *garbage = map(int, done.stdout.split())
    assert walked < 5_000, "the imports alone are some 100,000 objects"
    assert garbage[:2] == [1, 0], "later cycles are collected"
    assert garbage[3:] == [1, 0]
