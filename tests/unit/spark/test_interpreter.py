"""With which Python do workers start?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.spark.interpreter import choose_python, worker_python, wrapper_script

_SHOW = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.prefix, *sys.argv[1:]]))"


def test_the_script_runs_the_same_python_with_the_search_path_of_this_process(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(wrapper_script(sys.executable, "/a folder:/b"))
    script.chmod(0o755)
    done = subprocess.run(
        [script, "-c", _SHOW, "two words"],
        env={**os.environ, "PYTHONPATH": "/spark/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f'["/a folder:/b", "{sys.prefix}", "two words"]'


def test_workers_import_pyspark_from_where_it_is_installed(tmp_path: Path) -> None:
    python = worker_python(tmp_path, os.environ)
    assert python == str(tmp_path / "python")
    done = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": "/spark/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert ".zip" not in done.stdout


def test_the_users_python_is_taken_where_it_is(tmp_path: Path) -> None:
    given = {"spark.pyspark.python": sys.executable}
    assert choose_python("spark://a:1", tmp_path, given, {}) == sys.executable
    assert choose_python("spark://a:1", tmp_path, {}, {"PYSPARK_PYTHON": sys.executable}) == sys.executable
    assert choose_python("spark://a:1", tmp_path, {}, {}) == sys.executable


def test_a_python_that_is_not_here_is_told_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="no /opt/nowhere/python on this machine"):
        choose_python("spark://a:1", tmp_path, {"spark.pyspark.python": "/opt/nowhere/python"}, {})


def test_a_python_out_of_an_archive_is_our_own_on_this_machine(tmp_path: Path) -> None:
    given = {"spark.pyspark.python": "./environment/bin/python"}
    assert choose_python("spark://a:1", tmp_path, given, {}) == "./environment/bin/python"
    done = subprocess.run(
        ["./environment/bin/python", "-c", "import sys; print(sys.prefix)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == sys.prefix
