import hashlib
import re
from importlib.resources import files

import pytest

STATIC = files("headrace.status.console") / "static"
SUMS = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", SUMS)
def test_vendored_files_are_those_of_the_package(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == SUMS[name]


def test_version_and_licence_stand_beside_them() -> None:
    [version] = re.findall(r"\| (\d+\.\d+\.\d+) \| MIT", (STATIC / "VENDORED.md").read_text())
    assert f"(v{version})".encode() in (STATIC / "uPlot.iife.min.js").read_bytes()
    assert "Permission is hereby granted" in (STATIC / "uPlot.LICENSE").read_text()


def test_own_files_name_no_other_host() -> None:
    for name in ("console.js", "console.css"):
        assert re.findall(r"https?://|@import|//\w", (STATIC / name).read_text().replace("// ", "")) == []
