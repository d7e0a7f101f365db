"""Do the workflows run what there is, with no right too many, on the versions that the pages name?"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.embedded.jars import OPENSEARCH_3
from support.releases import OPENSEARCH_2

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
WRITES = {("release", "publish"): {"id-token"}, ("release", "notes"): {"contents"}}
"""The only jobs that may write, and what."""


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    return found


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job.get("steps", [])


def versions(axis: str) -> list[str]:
    """The versions that the workflow `compat` runs."""
    matrix = load("compat")["jobs"][axis]["strategy"]["matrix"]
    return matrix.get(axis) or [entry[axis] for entry in matrix["include"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_make_target_exists(file: Path) -> None:
    lines = re.findall(r"^([a-z0-9. -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for line in lines for target in line.split()}
    text = re.sub(r"install --yes.*", "", file.read_text())
    named = set(re.findall(r"\bmake ([a-z-]+(?:[0-9.]*[0-9])?)", text))
    assert named
    assert named - targets == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_of_tests_that_is_named_exists(file: Path) -> None:
    named = re.findall(r"tests/[\w/.]+", file.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_reads_and_only_a_release_writes(file: Path) -> None:
    workflow = load(file.stem)
    assert workflow["permissions"] == {"contents": "read"}
    written = {
        (file.stem, name): {right for right, level in job["permissions"].items() if level != "read"}
        for name, job in workflow["jobs"].items()
        if "permissions" in job
    }
    assert written == {job: rights for job, rights in WRITES.items() if job[0] == file.stem}
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_actions_are_pinned_and_no_text_of_a_stranger_reaches_a_shell(file: Path) -> None:
    """A branch is no pin, but for the one that the publishing action asks for."""
    workflow = load(file.stem)
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(
                r"actions/[\w-]+@(v\d+|[0-9a-f]{40})|pypa/gh-action-pypi-publish@(release/v1|[0-9a-f]{40})",
                step["uses"],
            )
        else:
            assert set(re.findall(r"\$\{\{ *(\w+)", step["run"])) <= {"matrix"}
    assert all("timeout-minutes" in job or "uses" in job for job in workflow["jobs"].values())


def test_a_release_waits_for_every_other_job() -> None:
    jobs = load("release")["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "compat", "dist"}
    assert jobs["notes"]["needs"] == "publish"
    assert {jobs["test"]["uses"], jobs["compat"]["uses"]} == {
        f"./.github/workflows/{name}.yml" for name in ("test", "compat")
    }
    for name in ("test", "compat"):
        assert "\n  workflow_call:\n" in (ROOT / f".github/workflows/{name}.yml").read_text()


def test_the_versions_are_those_of_the_page_the_classifiers_and_the_embedded_servers() -> None:
    page = (ROOT / "docs/reference/versions.md").read_text()
    named = dict(
        re.findall(
            r"^\| (Python|PostgreSQL|OpenSearch|Elasticsearch|PySpark) \| ([\d., ]+) \|", page, re.MULTILINE
        )
    )
    run = {name: ", ".join(versions(axis)) for name, axis in AXES.items()}
    assert named == run
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert classified == versions("python")
    embedded = [
        re.findall(r"opensearch-(\d+\.\d+)", release.name)[0] for release in (OPENSEARCH_2, OPENSEARCH_3)
    ]
    assert embedded == versions("opensearch")


AXES = {
    "Python": "python",
    "PostgreSQL": "postgres",
    "OpenSearch": "opensearch",
    "Elasticsearch": "elasticsearch",
    "PySpark": "pyspark",
}


def test_the_page_of_limits_names_the_same_versions() -> None:
    limits = (ROOT / "docs/explanation/limits.md").read_text()
    first, *_, last = versions("postgres")
    assert f"PostgreSQL {first} to {last} (" in limits
    assert f"OpenSearch {' and '.join(versions('opensearch'))}," in limits
    *_, older, newest = versions("pyspark")
    assert f"Python {versions('python')[0]} and newer; PySpark {newest} on Java 17" in limits
    assert f"and {older} (`make compat`" in limits
