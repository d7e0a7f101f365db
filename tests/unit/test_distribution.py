"""Do wheel and sdist hold what they should, and nothing else? `make dist` asks this of those in dist/."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from headrace.version import __version__

ROOT = Path(__file__).parents[2]
SDIST_BESIDE_SOURCE = {
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
}


def build(source: Path, target: Path, *kinds: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target), *kinds],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that HEADRACE_TEST_DIST names, else one that is built now."""
    named = os.environ.get("HEADRACE_TEST_DIST")
    if named is not None:
        return ROOT / named
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [found] = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    [found] = dist.glob("*.tar.gz")
    return found


def sources() -> set[str]:
    """The files of the source, data files too."""
    files = (ROOT / "src").rglob("*")
    return {
        str(file.relative_to(ROOT / "src"))
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_holds_every_file_of_the_source_its_licences_and_nothing_else(wheel: Path) -> None:
    about = f"headrace-{__version__}.dist-info"
    expected = sources() | {f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    licences = {"LICENSE", "src/headrace/status/console/static/uPlot.LICENSE"}
    found = set(zipfile.ZipFile(wheel).namelist())
    assert found == expected | {f"{about}/licenses/{name}" for name in licences}
    assert {"headrace/py.typed", "headrace/tools/demo/shop/tables.sql"} <= found
    assert {Path(name).parts[0] for name in found} == {
        "headrace",
        "pyspark_postgres_cdc",
        "pyspark_postgres_snapshot",
        about,
    }


def test_the_sdist_holds_the_source_and_what_builds_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in found if not name.startswith("src/")} == SDIST_BESIDE_SOURCE
    assert {name.removeprefix("src/") for name in found if name.startswith("src/")} == sources()


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path)
    build(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path, "-t", "wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_is_said_of_the_package_is_true(wheel: Path) -> None:
    """The version is also the program's and the changelog's; the lowest Python is the first that is named."""
    with zipfile.ZipFile(wheel) as archive:
        about = email.message_from_bytes(archive.read(f"headrace-{__version__}.dist-info/METADATA"))
    assert about["Version"] == __version__
    assert about["License-Expression"] == "Apache-2.0"
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(about.get_all("Classifier") or []))
    assert about["Requires-Python"] == f">={named[0]}"
    [last] = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[:1]
    assert last[0] == __version__
    tag = os.environ.get("HEADRACE_TEST_TAG")
    if tag is not None:
        assert tag == f"v{__version__}"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", last[1]), f"{last[0]} is {last[1]} in the changelog"


@pytest.mark.long
def test_the_sbom_names_every_package_of_the_lock_file_with_its_hashes(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    [command] = re.findall(r"cyclonedx-py (.*build/sbom\.cdx\.json)", makefile)
    file = tmp_path / "sbom.cdx.json"
    arguments = command.replace("build/sbom.cdx.json", str(file)).split()
    subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    sbom = json.loads(file.read_text())
    assert sbom["metadata"]["component"]["name"] == "headrace"
    lock = (ROOT / "deploy/requirements.lock").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert {component["name"] for component in sbom["components"]} == locked
    assert all(
        any("hashes" in reference for reference in component["externalReferences"])
        for component in sbom["components"]
    )
