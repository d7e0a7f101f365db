"""Tables change under load while a deployment runs, before the schema file does or after it.

Only the generation whose documents read what changed is frozen, and the next is built when file and database
fit again. The other indexes stay live.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from support.pauses import LONGEST_PAUSE
from support.town import PEOPLE, Column, Town, town_on

COLUMNS: list[Column] = [("name", "name"), ("city", "city"), ("mood", "mood::text"), ("seen", "seen")]
VISITS = """
CREATE TABLE visit (person_id int, day int, score int, PRIMARY KEY (person_id, day)) PARTITION BY RANGE (day);
CREATE TABLE visit_1 PARTITION OF visit FOR VALUES FROM (0) TO (10);
CREATE TABLE visit_2 PARTITION OF visit FOR VALUES FROM (10) TO (20);
INSERT INTO visit SELECT i, i % 20, 5 * i FROM generate_series(1, 99) i
"""


@dataclass(frozen=True)
class Ddl:
    """A change of the table, and of the schema file with it.

    Attributes:
        sql: the change.
        undo: what takes it back.
        file: the schema file that fits afterwards.
        city: the SQL of the field `city`; None where the file has no such field.
        town: whether the file has the field `town`.
        misfit: what the run says while the former file does not fit; empty where it does.
        concerns: whether documents read what changes, with the former file.
    """

    sql: str
    undo: str
    file: str = PEOPLE
    city: str | None = "city"
    town: bool = False
    misfit: str = ""
    concerns: bool = True

    @property
    def columns(self) -> list[Column]:
        """The fields of `people` afterwards."""
        columns = [(name, sql if name != "city" else self.city) for name, sql in COLUMNS]
        kept = [(name, sql) for name, sql in columns if sql is not None]
        return [*kept, ("town", "town")] if self.town else kept


KINDS = {
    "add": Ddl(
        "ALTER TABLE person ADD town text DEFAULT 'here'",
        "ALTER TABLE person DROP town",
        PEOPLE.replace("  - keyword: city\n", "  - keyword: city\n  - keyword: town\n"),
        town=True,
        concerns=False,
    ),
    "drop": Ddl(
        "ALTER TABLE person DROP city",
        "ALTER TABLE person ADD city text",
        PEOPLE.replace("  - keyword: city\n", ""),
        city=None,
        misfit="people.yml:6:",
    ),
    "rename": Ddl(
        "ALTER TABLE person RENAME city TO cty",
        "ALTER TABLE person RENAME cty TO city",
        PEOPLE.replace("  - keyword: city\n", "  - keyword: city\n    column: cty\n"),
        city="cty",
        misfit="people.yml:6:",
    ),
    "type": Ddl(
        "ALTER TABLE person ALTER city TYPE int USING length(city)",
        "ALTER TABLE person ALTER city TYPE text",
        PEOPLE.replace("keyword: city", "integer: city"),
        misfit="people.yml:6:",
    ),
    "label": Ddl(
        "ALTER TYPE mood RENAME VALUE 'low' TO 'down'", "ALTER TYPE mood RENAME VALUE 'down' TO 'low'"
    ),
    "partition": Ddl(
        "CREATE TABLE visit_3 (LIKE visit INCLUDING ALL); INSERT INTO visit_3 VALUES (1, 25, 7);"
        "ALTER TABLE visit ATTACH PARTITION visit_3 FOR VALUES FROM (20) TO (30)",
        "DROP TABLE visit_3",
    ),
    "index": Ddl("CREATE INDEX person_city ON person (city)", "DROP INDEX person_city", concerns=False),
    "again": Ddl(f"DROP TABLE visit; {VISITS}", "SELECT 1"),
}
SHORT = "add", "file first"
"""What `test_reload.py` does beside others, on the deployment that it has."""
CASES = [
    pytest.param(kind, way, id=f"{kind}, {way}")
    for way in ("ddl first", "file first")
    for kind in KINDS
    if (kind, way) != SHORT
]


@pytest.fixture(scope="module")
def town(
    postgres: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Town]:
    with town_on(postgres, opensearch.url, tmp_path_factory.mktemp("ddl"), "ddl") as town:
        yield town


@pytest.mark.long
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_tables_and_files_change_under_load(town: Town, kind: str, way: str) -> None:
    change_under_load(town, kind, way)


def change_under_load(town: Town, kind: str, way: str) -> None:
    """Change a table and the schema file, in this order, and back; the other indexes stay live."""
    ddl = KINDS[kind]
    if not town.runs():
        town.start()
        town.wait_ready()
    town.converges()
    served = {index: town.generation(index) for index in town.indexes}
    with town.load() as pauses:
        if way == "file first":
            town.write_schema("people", ddl.file)
            town.run_command("reload")
            town.sql(ddl.sql)
            town.run_command("reload")
        else:
            town.sql(ddl.sql)
            if ddl.misfit:
                town.wait_until(
                    lambda: ddl.misfit in str(town.of_board("people").get("error")), "says not", 60
                )
            town.write_schema("people", ddl.file)
            town.run_command("reload")
        if ddl.concerns or ddl.file != PEOPLE:
            town.wait_next_generation("people", served["people"])
        town.wait_until(town.is_ready, "is not ready", 120)
    town.columns = ddl.columns
    town.converges()
    others = ("goods", "notes")
    assert {index: town.generation(index) for index in others} == {index: served[index] for index in others}
    assert (town.generation("people") == served["people"]) == (not ddl.concerns and ddl.file == PEOPLE)
    (town.folder / "pauses").open("a").write(f"{kind}, {way}: {pauses.longest:.1f}\n")
    assert pauses.longest < LONGEST_PAUSE, town.last_output()
    town.write_schema("people", PEOPLE)
    town.columns = COLUMNS
    town.sql(ddl.undo)
    town.run_command("reload")
    town.converges()
    town.wait_until(town.is_ready, "is not ready", 120)


@pytest.mark.long
def test_a_restart_after_an_alteration_keeps_the_other_indexes_live(town: Town) -> None:
    """The table was altered while nothing ran; the index waits, and goes on once its file fits again."""
    ddl = KINDS["drop"]
    if not town.runs():
        town.start()
        town.wait_ready()
    town.converges()
    served = {index: town.generation(index) for index in town.indexes}
    town.terminate()
    town.sql(ddl.sql)
    town.start()
    town.wait_until(lambda: ddl.misfit in str(town.of_board("people").get("error")), "says not", 120)
    town.columns = ddl.columns
    town.sql("UPDATE good SET label = 'while it waits' WHERE id < 9; DELETE FROM note WHERE id < 5")
    town.wait_until(
        lambda: all(line.startswith("people: ") for line in town.wrong()), "does not follow the others", 60
    )
    assert town.is_ready(), "readers see a complete generation of each index"
    with town.load() as pauses:
        town.write_schema("people", ddl.file)
        town.run_command("reload")
        town.wait_next_generation("people", served["people"])
        town.wait_until(town.is_ready, "is not ready", 120)
    town.converges()
    others = ("goods", "notes")
    assert {index: town.generation(index) for index in others} == {index: served[index] for index in others}
    assert pauses.longest < LONGEST_PAUSE, town.last_output()
    town.write_schema("people", PEOPLE)
    town.columns = COLUMNS
    town.sql(ddl.undo)
    town.run_command("reload")
    town.converges()
