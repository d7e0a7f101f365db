"""Files change while a deployment runs under load: only what they concern is built, all else goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from support.town import NOTES, PEOPLE, Town, town_on

PAUSE_SECONDS = 5.0


@pytest.fixture(scope="module")
def town(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    with town_on(postgres, opensearch.url, tmp_path_factory.mktemp("reload"), "reload") as town:
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
    assert pauses.longest < PAUSE_SECONDS


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
    assert pauses.longest < PAUSE_SECONDS
    removed = town.generation("spares")
    with town.load() as pauses:
        town.indexes.remove("spares")
        town.write_config(town.indexes)
        assert "removed: spares" in town.run_command("reload").stderr
        town.sql("UPDATE spare SET what = 'nobody reads this'")
    town.converges()
    assert pauses.longest < PAUSE_SECONDS
    assert town.of_board("spares") == {}
    assert town.generation("spares") == removed
    assert {index: town.generation(index) for index in town.indexes} == served


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
