"""Files change while a deployment runs under load: only what they concern is built, all else goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
import urllib3

from e2e.test_ddl import SHORT, change_under_load
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.sinks.opensearch import Client, Endpoint
from support.http_proxy import Answer, HttpProxy, Request
from support.pauses import LONGEST_PAUSE
from support.town import NOTES, PEOPLE, Town, town_on

BUSY = b'{"error":{"type":"cluster_block_exception","reason":"busy"},"status":503}'
SETTINGS_FILE = 'schema = "goods.yml"\nsettings_file = "settings.json"\n'


@pytest.fixture(scope="module")
def proxy(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def town(
    postgres: EmbeddedPostgres, proxy: HttpProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    with town_on(postgres, proxy.url, tmp_path_factory.mktemp("reload"), "reload") as town:
        yield town


def test_a_changed_schema_file_is_taken_up_beside_the_others(town: Town) -> None:
    running(town)
    served = {index: town.generation(index) for index in town.indexes}
    with town.load() as pauses:
        town.write_schema("people", PEOPLE.replace("  - keyword: city\n", ""))
        town.columns = [column for column in town.columns if column[0] != "city"]
        town.hang_up()
        town.wait_next_generation("people", served["people"])
        town.wait_until(town.is_ready, "is not ready", 60)
    town.converges()
    assert town.said("rebuilt: people")
    assert {index: town.generation(index) for index in ("goods", "notes")} == {
        index: served[index] for index in ("goods", "notes")
    }
    assert pauses.longest < LONGEST_PAUSE


@pytest.mark.long
def test_mistakes_are_reported_all_at_once_and_nothing_changes(town: Town) -> None:
    running(town)
    served = {index: town.generation(index) for index in town.indexes}
    people = (town.folder / "people.yml").read_text()
    town.write_config(town.indexes, 'wal_budget = "9GB"\n')
    town.write_schema("people", people.replace("keyword: name", "keyword: nam"))
    town.write_schema("notes", NOTES.replace("fields", "feilds", 1))
    answer = town.run_command("reload")
    assert answer.returncode != 0
    for mistake in ("source.wal_budget", "nam", "feilds", "people.yml:", "notes.yml:"):
        assert mistake in answer.stderr, answer.stderr
    assert any("wal_budget" in warning for warning in town.status()["warnings"])
    town.write_config(town.indexes)
    town.write_schema("people", people)
    town.write_schema("notes", NOTES)
    with town.load():
        assert "every index is as it was" in town.run_command("reload").stderr
    assert not any("wal_budget" in warning for warning in town.status()["warnings"])
    assert {index: town.generation(index) for index in town.indexes} == served
    town.converges()


@pytest.mark.long
def test_indexes_are_added_and_removed(town: Town) -> None:
    """An added table joins the publication; what readers see of a removed index stays as it is."""
    running(town)
    served = {index: town.generation(index) for index in town.indexes}
    with town.load() as pauses:
        town.indexes.append("spares")
        town.write_config(town.indexes)
        assert "added: spares" in town.run_command("reload").stderr
        town.sql("UPDATE spare SET what = 'changed' WHERE id < 9")
        town.wait_until(lambda: bool(town.generation("spares")), "does not serve spares", 120)
    town.sql("UPDATE spare SET what = 'changed again' WHERE id < 5; DELETE FROM spare WHERE id = 40")
    town.converges()
    assert pauses.longest < LONGEST_PAUSE
    removed = town.generation("spares")
    with town.load() as pauses:
        town.indexes.remove("spares")
        town.write_config(town.indexes)
        assert "removed: spares" in town.run_command("reload").stderr
        town.sql("UPDATE spare SET what = 'nobody reads this'")
    town.converges()
    assert pauses.longest < LONGEST_PAUSE
    assert town.of_board("spares") == {}
    assert town.generation("spares") == removed
    assert {index: town.generation(index) for index in town.indexes} == served
    # Another deployment takes the index over: what it builds is not dropped.
    others = f"{town.prefix}spares_aa_9"
    with contextlib.closing(Client(Endpoint((town.sink,)))) as client:
        client.call(
            "PUT", f"/{others}", {"mappings": {"_meta": {"headrace": {"index": "spares", "hash": "aa"}}}}
        )
        assert town.run_command("reindex", "people").returncode == 0
        town.wait_next_generation("people", served["people"])
        assert client.call("DELETE", f"/{others}").ok


@pytest.mark.long
def test_what_the_cluster_refuses_is_told_and_keeps_its_index_as_it_was(town: Town) -> None:
    """The other changes of the same files are taken up: each index fails alone."""
    running(town)
    town.indexes.remove("notes")
    served = {index: town.generation(index) for index in town.indexes}
    (town.folder / "settings.json").write_text(json.dumps({"index": {"no_such_setting": 1}}))
    town.write_config(town.indexes)
    config = town.folder / "headrace.toml"
    config.write_text(config.read_text().replace('schema = "goods.yml"\n', SETTINGS_FILE))
    with town.load():
        answer = town.run_command("reload", seconds=300)
        assert answer.returncode != 0
        assert "no_such_setting" in answer.stderr, answer.stderr
        town.wait_until(town.is_ready, "is not ready", 120)
    town.converges()
    assert {index: town.generation(index) for index in town.indexes} == served
    assert "no_such_setting" in town.of_board("goods")["error"]
    assert town.of_board("notes") == {}, "it is in no file any more"
    town.indexes.append("notes")
    town.write_config(town.indexes)
    assert "added: notes" in town.run_command("reload", seconds=300).stderr
    town.wait_until(lambda: town.of_board("goods").get("error") is None, "still says what was refused", 60)
    town.converges()


def test_a_setting_that_a_living_index_takes_holds_without_another_generation(
    town: Town, opensearch: EmbeddedOpenSearch
) -> None:
    running(town)
    served = town.generation("goods")
    (town.folder / "settings.json").write_text(json.dumps({"refresh_interval": "7s"}))
    config = town.folder / "headrace.toml"
    config.write_text(config.read_text().replace('schema = "goods.yml"\n', SETTINGS_FILE))
    assert "settings changed: goods" in town.run_command("reload").stderr

    def is_taken() -> bool:
        [index] = urllib3.request("GET", f"{opensearch.url}/{served}/_settings").json().values()
        return bool(index["settings"]["index"]["refresh_interval"] == "7s")

    town.wait_until(is_taken, "the setting is as before", 60)
    assert town.generation("goods") == served
    town.write_config(town.indexes)
    town.run_command("reload")


@pytest.mark.long
def test_a_column_that_the_changed_file_names_first_is_taken_up_once_the_table_has_it(town: Town) -> None:
    running(town)
    change_under_load(town, *SHORT)


@pytest.mark.long
def test_a_busy_cluster_delays_a_reload(town: Town, proxy: HttpProxy) -> None:
    running(town)
    left = [2]

    def spoil(request: Request) -> Answer | None:
        if request.method != "PUT" or "/reload_people" not in request.target or not left[0]:
            return None
        left[0] -= 1
        return Answer(503, BUSY)

    before = town.generation("people")
    proxy.spoil = spoil
    people = (town.folder / "people.yml").read_text()
    town.write_schema("people", people.replace("  - keyword: name\n", ""))
    town.columns = [column for column in town.columns if column[0] != "name"]
    with town.load():
        town.hang_up()
        town.wait_next_generation("people", before)
    assert not left[0]
    town.converges()
    assert town.said("the run has read the files: being rebuilt: people")
    town.write_schema("people", people)
    town.columns = [("name", "name"), *town.columns]
    assert town.run_command("reload").returncode == 0
    town.converges()


def running(town: Town) -> None:
    """Also where one of the tests runs alone."""
    if not town.runs():
        town.start()
        town.wait_ready()


@pytest.mark.long
@pytest.mark.parametrize("failpoint", ["checked", "made", "joined"])
def test_a_run_that_is_killed_in_a_reload_has_every_document_after_the_next_start(
    town: Town, failpoint: str
) -> None:
    """Also of a table that is altered while nothing runs, and that only the new schema file names."""
    if town.runs():
        town.terminate()
    town.start(failpoint)
    town.wait_ready()
    before = (town.folder / "people.yml").read_text()
    town.write_schema(
        "people",
        before.replace("  - keyword: name\n", "  - keyword: name\n  - text: label\n    column: name\n"),
    )
    town.write_config([*town.indexes, "spares"])
    with town.load():
        town.hang_up()
        town.wait_failpoint()
        town.kill()
    town.indexes.append("spares")
    town.columns = [*town.columns, ("label", "name")]
    town.sql(
        "UPDATE spare SET what = 'while nothing runs' WHERE id < 7; UPDATE person SET name = 'x' WHERE id < 3"
    )
    town.start()
    town.wait_ready()
    town.sql("UPDATE spare SET what = 'later' WHERE id < 3; UPDATE person SET name = 'y' WHERE id < 5")
    town.converges()
    town.indexes.remove("spares")
    town.columns = town.columns[:-1]
    town.write_config(town.indexes)
    town.write_schema("people", before)
    assert town.run_command("reload").returncode == 0
    town.converges()
