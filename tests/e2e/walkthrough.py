"""What is typed on docs/guides/moving.md, section by section."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

from headrace.cli import main

_PAGE = (Path(__file__).parents[2] / "docs/guides/moving.md").read_text()


def blocks(section: str, language: str) -> list[str]:
    """The examples of a section of the page in one language."""
    text = _PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed(line: str) -> tuple[int, str, str]:
    """Exit code, output and messages of a line that begins with `headrace`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line.split()[1:])
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def commands(block: str) -> list[str]:
    """The lines of a block, without comments and with the ends of long ones."""
    joined = block.replace("\\\n", " ")
    return [line.partition("  #")[0].strip() for line in joined.splitlines()]


def shell(line: str) -> None:
    subprocess.run(
        ["bash", "-ec", line.replace("curl", "curl -fsS")], check=True, timeout=60, capture_output=True
    )
