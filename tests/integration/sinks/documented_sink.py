"""The sink that docs/guides/sinks.md shows, installed from what stands there."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = (Path(__file__).parents[3] / "docs/guides/sinks.md").read_text()
_MODULE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DECLARED = re.compile(r'^\[project\.entry-points\."headrace\.sinks"\]\n(.*?)\n```', re.MULTILINE)
_DEPLOYED = re.compile(r"^```toml\n(\[sinks\.\w+\]\ntype = \"sqlite\"\n.*?)^```", re.MULTILINE | re.DOTALL)


def package(folder: Path, declared: str) -> None:
    """As if it were installed there."""
    info = folder / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.sinks]\n{declared}\n")


def modules() -> dict[str, str]:
    """The code of each module, by its file's name: the sink and its tests."""
    found = dict(_MODULE.findall(_PAGE))
    assert [*found] == ["sqlite_sink.py", "test_sqlite_sink.py"]
    return found


def install(folder: Path) -> None:
    """Put both modules and their entry point there."""
    for name, code in modules().items():
        (folder / name).write_text(code)
    [declared] = _DECLARED.findall(_PAGE)
    package(folder, declared.replace('"', ""))


def deployed(file: Path) -> str:
    """What a deployment says of it, with another file."""
    [text] = _DEPLOYED.findall(_PAGE)
    named, places = re.subn(r'^file = ".*"$', f'file = "{file}"', text, flags=re.MULTILINE)
    assert places == 1
    return named
