"""What a run that stands by makes of files that were changed meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.claim import Claim
from headrace.pipeline.project import open_project
from headrace.pipeline.stopping import Stopping
from headrace.sinks.opensearch import Client
from headrace.state.lease import Lease
from headrace.status.board import StatusBoard
from integration.cli.stock import Stock

MORE = '[[index]]\nname = "more"\nschema = "stock.schema.yml"\n'


@pytest.fixture
def claim(
    database: str, tmp_path: Path, opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Claim]:
    name = tmp_path.name  # a process loads a module once, so each test has one of its own
    (tmp_path / f"{name}.py").write_text("def shout(document):\n    return document\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Stock(tmp_path, database, opensearch.url, f'transform = "{name}:shout"\n').config
    project = open_project(config, {})
    endpoints = project.resolve()
    with contextlib.closing(Client(endpoints.sink)) as client:
        yield Claim(
            project,
            endpoints,
            client,
            StatusBoard(),
            Stopping(),
            lambda: (open_project(config, {}), ()),
            Lease(client, project.key, [*project.specs]),
        )


def test_it_takes_over_with_what_a_reload_takes_up(claim: Claim, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(file.read_text() + MORE)
    assert claim.wait()
    assert [*claim.project.specs] == ["stock", "more"]


def test_it_takes_over_with_the_former_files_where_they_are_wrong_now(claim: Claim, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(file.read_text() + MORE.replace("more", "more more"))
    assert claim.wait()
    assert [*claim.project.specs] == ["stock"]


@pytest.mark.parametrize(
    ("found", "written", "told"),
    [
        ("[[index]]", '[sinks.more]\ntype = "stdout"\n[[index]]', "sinks.more changed"),
        ('slot = "', 'slot = "other_', "source.slot changed"),
        ("return document", "return None", "the code of the transform .* changed"),
    ],
)
def test_it_ends_for_its_supervisor_where_a_change_needs_a_new_start(
    claim: Claim, tmp_path: Path, found: str, written: str, told: str
) -> None:
    for file in tmp_path.glob("*.*"):
        file.write_text(file.read_text().replace(found, written))
    with pytest.raises(HeadraceError, match=told) as ended:
        claim.wait()
    assert ended.value.kind is Kind.CONTINUITY
    assert ended.value.exit_code == 1, "with 2 it would not be started again"
