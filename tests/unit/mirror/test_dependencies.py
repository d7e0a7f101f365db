"""Does each format do without the other's library?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_CODE = """
import importlib, sys
from headrace.config.mirror import MirrorConfig

sys.modules["{absent}"] = None  # as if it were not installed
for name in ("cli.mirror", "cli.mirror_check", "cli.mirror_verify", "mirror.batches", "mirror.mirror"):
    importlib.import_module(f"headrace.{{name}}")
from headrace.mirror.formats import open_lake
from headrace.model.names import TableName

lake = open_lake(MirrorConfig(tables=[{{"tables": ["public.t"]}}], location="{location}", format="{kind}"))
assert lake.open(TableName("public", "t")) is None
"""


@pytest.mark.long
@pytest.mark.parametrize(("kind", "absent"), [("iceberg", "deltalake"), ("delta", "pyiceberg")])
def test_a_mirror_needs_the_library_of_its_own_format_alone(tmp_path: Path, kind: str, absent: str) -> None:
    code = _CODE.format(kind=kind, absent=absent, location=tmp_path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_of_a_mirror_loads_nothing_of_the_query_for_documents() -> None:
    """That needs PySpark 4.2, and a mirror runs on 4.0 too."""
    found = "[name for name in sys.modules if '.pipeline.stream' in name]"
    program = f"import sys, headrace.cli.mirror; print({found})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
