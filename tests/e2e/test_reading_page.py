"""Does the program of docs/guides/reading.md pass a type checker, and read what it has written?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

from e2e.conftest import Deploy
from headrace.pipeline.project import open_project
from headrace.tools.document_types.generate import generate_types

PAGE = Path(__file__).parents[2] / "docs/guides/reading.md"


@pytest.mark.long
def test_the_program_of_the_page_is_typed_and_reads_its_own_write(deploy: Deploy, tmp_path: Path) -> None:
    pytest.importorskip("opensearchpy")
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with deploy(users=20) as pipeline:
        types = generate_types(open_project(pipeline.config, {}), "python", [], offline=False)
        (tmp_path / "documents.py").write_text(types)
        file = tmp_path / "program.py"
        file.write_text(program.replace('index="users"', f'index="{pipeline.prefix}users"'))
        checked, errors, code = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(file)])
        assert code == 0, checked + errors
        pipeline.start()
        pipeline.wait_ready()
        pipeline.shop.run("UPDATE users SET name = 'Just now', active = true WHERE id = 1")
        done = subprocess.run(
            [sys.executable, str(file)],
            env={**os.environ, "SEARCH": pipeline.sink_url, "RUN": pipeline.page.removeprefix("http://")},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.stdout.startswith("Just now ["), done.stdout + done.stderr
