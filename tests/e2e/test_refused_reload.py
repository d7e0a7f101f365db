"""A cluster is busy with, or refuses, what changed files need: the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from support.http_proxy import Answer, HttpProxy, Request
from support.town import PEOPLE, Town, town_on

BUSY = b'{"error":{"type":"cluster_block_exception","reason":"busy"},"status":503}'
SETTINGS_FILE = 'schema = "goods.yml"\nsettings_file = "settings.json"\n'


@pytest.fixture(scope="module")
def servers(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Town, HttpProxy]]:
    with (
        HttpProxy(opensearch.url) as proxy,
        town_on(postgres, proxy.url, tmp_path_factory.mktemp("refused"), "refused") as town,
    ):
        town.start()
        town.wait_ready()
        yield town, proxy


@pytest.mark.long
def test_a_busy_cluster_delays_a_reload(servers: tuple[Town, HttpProxy]) -> None:
    town, proxy = servers
    left = [2]

    def spoil(request: Request) -> Answer | None:
        if request.method != "PUT" or "/refused_people" not in request.target or not left[0]:
            return None
        left[0] -= 1
        return Answer(503, BUSY)

    before = town.generation("people")
    proxy.spoil = spoil
    town.write_schema("people", PEOPLE.replace("  - keyword: city\n", ""))
    town.columns = [column for column in town.columns if column[0] != "city"]
    with town.load():
        town.hang_up()
        town.wait_next_generation("people", before)
    assert not left[0]
    town.converges()
    assert town.said("the files are taken up: being rebuilt: people")


def test_what_the_cluster_refuses_is_told_and_the_former_files_stay(servers: tuple[Town, HttpProxy]) -> None:
    """Also the index that the refused files leave out is followed as before."""
    town, _ = servers
    served = {index: town.generation(index) for index in town.indexes}
    (town.folder / "settings.json").write_text(json.dumps({"index": {"no_such_setting": 1}}))
    town.write_config([index for index in town.indexes if index != "notes"])
    config = town.folder / "headrace.toml"
    config.write_text(config.read_text().replace('schema = "goods.yml"\n', SETTINGS_FILE))
    with town.load():
        answer = town.run_command("reload", seconds=300)
        assert answer.returncode != 0
        assert "no_such_setting" in answer.stderr, answer.stderr
        town.wait_until(town.is_ready, "is not ready", 120)
    town.converges()
    assert {index: town.generation(index) for index in town.indexes} == served
    town.write_config(town.indexes)
    assert "every index is as it was" in town.run_command("reload", seconds=300).stderr
