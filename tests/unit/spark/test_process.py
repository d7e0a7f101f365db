"""Are the Python processes of a session light?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headrace.pipeline.stream.documents_source import READER
from headrace.spark.environment import passes_position

_MODULE = """
import json, sys
import pyarrow as pa
pa.array(["text"])
found = [name for name in sys.modules if "." not in name]

def number_of_nulls(batch):
    import pandas
    return pa.array(pandas.Series(["a", None, float("nan")])).null_count

from headrace.assembly.transform import load_transform
print(json.dumps([sys.argv[1:], found, load_transform("some_module:number_of_nulls")(None)]))
"""


def loaded_in_a_process(folder: Path, preloaded: str, argument: str) -> set[str]:
    (folder / "some_module.py").write_text(_MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "headrace.spark.process", preloaded, "-m", "some_module", argument],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, found, nulls = json.loads(done.stdout.splitlines()[-1])
    assert arguments == [argument]
    assert nulls == 2, "code of a user has all of PyArrow"
    return set(found)


@pytest.mark.skipif(not passes_position(pyspark.__version__), reason="documents need PySpark 4.2")
def test_a_worker_has_what_documents_need_and_nothing_that_reads_files(tmp_path: Path) -> None:
    loaded = loaded_in_a_process(tmp_path, READER, "pyspark.worker")
    assert {"headrace", "psycopg", "pyarrow"} <= loaded
    assert not loaded & {"pandas", "pydantic", "yaml", "rich", "typer", "starlette", "jinja2"}


def test_other_processes_load_nothing_before_they_need_it(tmp_path: Path) -> None:
    loaded = loaded_in_a_process(tmp_path, READER, "pyspark.sql.worker.create_data_source")
    assert "psycopg" not in loaded
    assert "pandas" not in loaded


def test_a_program_that_is_debugged_can_import_the_sources(tmp_path: Path) -> None:
    """Its main module has no `__spec__`."""
    program = tmp_path / "job.py"
    program.write_text("import headrace.datasources\nprint('it is there')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pdb", "-c", "continue", "-c", "quit", str(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "it is there" in done.stdout, done.stdout + done.stderr
