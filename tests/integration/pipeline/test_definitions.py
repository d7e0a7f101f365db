"""What a run knows of files and tables, also where a look at the database fails; no cluster is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.pipeline.controller.desired import Definition
from headrace.pipeline.controller.world import CatalogSeen, TableVerdict
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.project import Project, open_project
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.lock_holders import LockedError
from headrace.schema.tree import ColumnField
from headrace.state import GenerationState, PipelineState, Unit

UNIT = Unit("", "narrow")
SCHEMA = "version: 1\ntable: narrow\nprimary_key: id\nfields: [{ long: number }]\n"
# No TOAST table, and not published by its name: only its rows tell what has given it another file.
DDL = (
    "CREATE TABLE narrow (id int PRIMARY KEY, number int)",
    "INSERT INTO narrow SELECT i, i FROM generate_series(1, 9) i",
    "CREATE PUBLICATION narrow FOR ALL TABLES",
)


class Ground:
    """A deployment, and what a run of it knows."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self._folder = url, folder
        self.write(SCHEMA)
        (folder / "headrace.toml").write_text(
            f'[source]\ntype = "postgres"\nconnection_url = {json.dumps(url)}\nslot = "narrow"\n'
            'publication = "narrow"\n[sinks.primary]\ntype = "opensearch"\nurl = "http://127.0.0.1:9"\n'
            '[[index]]\nname = "narrow"\nschema = "narrow.yml"\n'
        )
        self.now = 0.0
        self.connection: Connection = connect(url)
        for statement in DDL:
            execute(self.connection, statement)
        self.restart()

    def write(self, schema: str) -> None:
        (self._folder / "narrow.yml").write_text(schema)

    def add(self, table: str) -> None:
        """Describe an index of another table, and know nothing any more."""
        (self._folder / f"{table}.yml").write_text(SCHEMA.replace("narrow", table))
        with (self._folder / "headrace.toml").open("a") as file:
            file.write(f'[[index]]\nname = "{table}"\nschema = "{table}.yml"\n')
        self.restart()

    def project(self) -> Project:
        return open_project(self._folder / "headrace.toml", {})

    def restart(self) -> None:
        """Know nothing any more, as a process that begins."""
        project = self.project()
        self.definitions = Definitions(project, project.resolve(), clock=lambda: self.now)

    def look(self, state: PipelineState | None = None) -> CatalogSeen:
        """Look once the pause after the last look is over."""
        self.now += 60.0
        return self.definitions.look(self.connection, state)

    def fail_to_look(self) -> None:
        """Look at a server that has ended the connection."""
        with connect(self.url) as lost:
            execute(self.connection, f"SELECT pg_terminate_backend({lost.info.backend_pid})")
            with pytest.raises(HeadraceError):
                self.definitions.look(lost, None)

    def following(self, catalog: str) -> PipelineState:
        """A state that follows the generation of the files as they are, and stores a catalog."""
        hash_, schema = self.definitions.hashes[UNIT], self.definitions.pack_schema("", "narrow")
        served = GenerationState("narrow", "narrow_1", "1", hash_, published=True, schema=schema)
        return PipelineState(
            "7",
            1,
            5,
            "narrow",
            "narrow",
            "following",
            1,
            50,
            (served,),
            {"public.narrow": 1},
            catalog=catalog,
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Somebody holds the table, as a TRUNCATE does before a long COPY."""
        with connect(self.url) as other:
            execute(other, "BEGIN")
            execute(other, "LOCK narrow")
            yield


@pytest.fixture
def ground(database: str, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(tmp_path, database)
    yield found
    found.connection.close()


@pytest.mark.timeout(60)
def test_what_was_altered_is_seen_once_a_lock_lets_the_look_through(ground: Ground) -> None:
    """The look waits for the lock no longer than a moment, and forgets nothing where it fails."""
    state = ground.following(ground.look().text)
    execute(ground.connection, "TRUNCATE narrow")
    ground.restart()
    ground.look()
    with ground.locked():
        for _ in range(2):
            with pytest.raises(LockedError, match=r"public\.narrow"):
                ground.look(state)
    [change] = ground.look(state).changes["narrow_1"]
    assert change.verdict is TableVerdict.LIKE_A_TRUNCATE


def test_a_table_that_is_locked_at_a_start_keeps_no_index_from_being_followed(ground: Ground) -> None:
    ground.write(SCHEMA + 'filters: [{ raw: "number > 0" }]\n')
    ground.restart()
    state = ground.following(ground.look().text)
    ground.restart()
    with ground.locked():
        ground.look(state)
        units = ground.definitions.units()
    assert units is not None
    assert units[UNIT] == Definition(state.generations[0].hash, "")
    assert ground.definitions.unfit == {}
    [finding] = ground.definitions.inspection.findings
    assert finding.level == "warning"
    assert "narrow is locked by pid" in str(finding.error)


def test_a_stored_catalog_that_cannot_be_read_is_said_in_every_look(ground: Ground) -> None:
    ground.look()
    state = ground.following("no catalog")
    for _ in range(3):
        with pytest.raises(HeadraceError, match="the catalog as it was cannot be read"):
            ground.look(state)


def test_a_look_that_failed_is_not_repeated_at_once(ground: Ground) -> None:
    state = ground.following(ground.look().text)
    execute(ground.connection, "TRUNCATE narrow")
    ground.restart()
    ground.look()
    with ground.locked(), pytest.raises(LockedError):
        ground.look(state)
    with pytest.raises(LockedError):
        ground.definitions.look(ground.connection, state)
    assert ground.look(state).changes


def test_the_units_are_not_known_before_the_first_look_succeeds(ground: Ground) -> None:
    ground.fail_to_look()
    assert ground.definitions.units() is None
    ground.look()
    assert set(ground.definitions.units() or ()) == {UNIT}


def test_the_former_hashes_say_nothing_of_files_that_are_not_compared_yet(ground: Ground) -> None:
    state = ground.following(ground.look().text)
    ground.write(SCHEMA.replace("long", "integer"))
    ground.definitions.adopt(ground.project())
    ground.fail_to_look()
    assert ground.definitions.units() is None
    [served] = state.generations
    assert ground.definitions.spec_of(served) is not None, "it is followed on meanwhile"
    ground.look(state)
    units = ground.definitions.units()
    assert units is not None
    assert units[UNIT].hash not in ("", served.hash)


def test_what_is_served_is_followed_over_a_restart_with_other_files_though_no_sink_answers(
    ground: Ground,
) -> None:
    state = ground.following(ground.look().text)
    ground.write(SCHEMA.replace("long", "integer"))
    ground.restart()
    ground.look(state)
    assert ground.definitions.unfit == {}
    [served] = state.generations
    spec = ground.definitions.spec_of(served)
    assert spec is not None
    assert [field.tag for field in spec.fields if isinstance(field, ColumnField)] == ["long"]


def test_what_no_schema_is_kept_of_or_reads_a_column_of_another_type_is_not_followed(ground: Ground) -> None:
    state = ground.following(ground.look().text)
    [served] = state.generations
    ground.write(SCHEMA.replace("long", "integer"))
    ground.restart()
    ground.look(replace(state, generations=(replace(served, schema=""),)))
    assert "kept no schema" in ground.definitions.unfit["narrow_1"]
    execute(ground.connection, "ALTER TABLE narrow ALTER number TYPE bigint")
    ground.write(SCHEMA)
    ground.restart()
    ground.look(state)
    assert "integer" in ground.definitions.unfit["narrow_1"]


def test_a_set_up_concerns_the_indexes_that_read_its_tables(ground: Ground) -> None:
    for statement in (
        "DROP PUBLICATION narrow",
        "CREATE PUBLICATION narrow FOR TABLE narrow",
        "CREATE TABLE wide (id int PRIMARY KEY, number int)",
    ):
        execute(ground.connection, statement)
    ground.add("wide")
    seen = ground.look()
    assert "wide" in seen.set_up
    assert seen.unprepared == {"wide"}
    execute(ground.connection, "DROP PUBLICATION narrow")
    ground.restart()
    assert ground.look().unprepared == {"narrow", "wide"}
