"""A publication of all tables lets its tables be unlogged: what was written then is in no log.

SET UNLOGGED and SET LOGGED leave another file behind, as VACUUM FULL and TRUNCATE do, which end nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import pytest

from headrace.errors import HeadraceError
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from support.catalog_watch import CatalogWatch

WIDE, NARROW = TableName("public", "wide"), TableName("public", "narrow")
USAGE = {WIDE: frozenset({"id", "note"}), NARROW: frozenset({"id", "number"})}
DDL = """
CREATE TABLE wide (id int PRIMARY KEY, note text, spare int);
CREATE TABLE narrow (id int PRIMARY KEY, number int, spare int);
INSERT INTO wide SELECT i, 'x' FROM generate_series(1, 9) i;
INSERT INTO narrow SELECT i, i FROM generate_series(1, 9) i;
CREATE PUBLICATION p FOR ALL TABLES
"""


class World:
    def __init__(self, url: str) -> None:
        self.connection: Connection = connect(url)
        self.sql(DDL)
        self.watch = CatalogWatch(url, USAGE, "p")
        self.watch.look()

    def sql(self, text: str) -> None:
        for statement in text.split(";"):
            execute(self.connection, statement)


@pytest.fixture
def world(database: str) -> Iterator[World]:
    world = World(database)
    yield world
    world.watch.close()
    world.connection.close()


WRITES = ["UPDATE {t} SET spare = 1", "DELETE FROM {t} WHERE id = 1", "INSERT INTO {t} VALUES (20)"]


@pytest.mark.long
@pytest.mark.parametrize("table", ["wide", "narrow"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("around", ["{w}", "BEGIN; {w}; COMMIT", "{w}; GRANT SELECT ON {t} TO PUBLIC"])
def test_what_was_written_meanwhile_ends_a_run(world: World, table: str, write: str, around: str) -> None:
    unlogged = "ALTER TABLE {t} SET UNLOGGED; " + write + "; ALTER TABLE {t} SET LOGGED"
    world.sql(around.replace("{w}", unlogged).replace("{t}", table))
    with pytest.raises(HeadraceError, match=f"{table} was rewritten, and may have been unlogged"):
        world.watch.look()


HARMLESS = {
    "VACUUM FULL wide; VACUUM FULL narrow": set(),
    "CLUSTER wide USING wide_pkey; CLUSTER narrow USING narrow_pkey": set(),
    "INSERT INTO narrow VALUES (20); VACUUM FULL narrow; GRANT SELECT ON narrow TO PUBLIC": set(),
    "TRUNCATE wide; INSERT INTO wide VALUES (30)": set(),
    "TRUNCATE narrow": {NARROW},
    "TRUNCATE narrow; INSERT INTO narrow VALUES (30)": {NARROW},
    "BEGIN; TRUNCATE narrow; INSERT INTO narrow VALUES (30); COMMIT": {NARROW},
    "BEGIN; ALTER TABLE narrow SET UNLOGGED; DELETE FROM narrow; ALTER TABLE narrow SET LOGGED; COMMIT": {
        NARROW
    },
    "BEGIN; ALTER TABLE narrow SET UNLOGGED; TRUNCATE narrow; ALTER TABLE narrow SET LOGGED; COMMIT": {
        NARROW
    },
}


@pytest.mark.parametrize(("statements", "emptied"), HARMLESS.items(), ids=HARMLESS)
def test_other_new_files_end_none(world: World, statements: str, emptied: AbstractSet[TableName]) -> None:
    """A table that may have been emptied without a word in the log is taken for one that was."""
    world.sql(statements)
    world.watch.look()
    world.watch.look()
    assert world.watch.emptied == emptied
