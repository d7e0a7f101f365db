"""Is the house as its pages say: the rooms, and names that mean one thing?"""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/headrace"


def rooms() -> set[str]:
    return {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}


def test_no_public_class_name_stands_twice() -> None:
    found = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_contributing_lists_every_room_once() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(rooms())


def test_every_room_has_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = " | ".join(
        next(one for one in contracts if one["name"] == "Rooms depend only downward")["layers"]
    )
    assert {name.removeprefix("headrace.") for name in layers.split(" | ")} >= rooms()


def test_unit_tests_mirror_the_source() -> None:
    """A test of one file stands where the file does; others are named by what they show.

    `deploy/` stands beside the source, and so do its tests.
    """
    strangers = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests/unit").rglob("test_*.py")
        if file.parent != ROOT / "tests/unit"
        and file.parent != ROOT / "tests/unit/deploy"
        and not (SOURCE / file.parent.relative_to(ROOT / "tests/unit")).is_dir()
    ]
    assert strangers == []


def test_every_file_that_the_architecture_names_is_there() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    named = re.findall(r"`?([a-z_]+/[a-z_/]+\.py)`?", page)
    assert len(named) > 20
    assert [name for name in named if not (SOURCE / name).is_file()] == []


def test_an_error_is_the_last_word_of_the_message_that_quotes_it() -> None:
    """Its text ends with a remedy and a full stop: "…, its log says so.; starting again" is no sentence."""
    broken = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                for part, following in itertools.pairwise(node.values):
                    is_error = isinstance(part, ast.FormattedValue) and ast.unparse(part.value) in _ERRORS
                    if is_error and ast.unparse(following)[1:2] in set(";,."):
                        broken.append(f"{file.relative_to(SOURCE)}:{node.lineno}")
        if '"; ".join(str(' in file.read_text():
            broken.append(f"{file.relative_to(SOURCE)}: errors are joined by `in_one_line`")
    assert broken == []


_ERRORS = {"error", "failure", "self._failure", "self._error"}
"""What holds a whole error where messages are made; its `cause` has no full stop."""
