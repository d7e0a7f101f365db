"""What `postgres_cdc` does about changes of rows of which PostgreSQL's log says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.datasources import catalog_watch
from headrace.datasources.catalog_watch import CatalogWatch
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from integration.datasources.driven import Query

_START = {"startingOffsets": "earliest"}
_TABLES = (
    "CREATE TABLE one (id int PRIMARY KEY, n int, short varchar(9), body text)",
    "CREATE TABLE bare (id int PRIMARY KEY, n int)",
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TYPE pair AS (x int, y int)",
    "CREATE TABLE typed (id int PRIMARY KEY, mood mood, pair pair)",
    "CREATE TYPE span AS RANGE (subtype = mood)",
    "CREATE TABLE ranged (id int PRIMARY KEY, span span)",
    "INSERT INTO ranged VALUES (1, '[sad,glad]')",
    "CREATE TABLE measure (at int PRIMARY KEY, n int) PARTITION BY RANGE (at)",
    "CREATE TABLE early PARTITION OF measure FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE late PARTITION OF measure FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE alone (LIKE measure INCLUDING ALL)",
    "INSERT INTO one VALUES (1, 1, 'a', 'text'), (2, 2, 'b', 'text')",
    "INSERT INTO bare VALUES (1, 1), (2, 2)",
    "INSERT INTO typed VALUES (1, 'sad', '(1,2)')",
    "INSERT INTO measure VALUES (1, 1), (11, 1)",
    "INSERT INTO alone VALUES (21, 1)",
)
_WRITES = {
    "one": "INSERT INTO one (id, n) OVERRIDING SYSTEM VALUE VALUES ({}, 3)",
    "bare": "INSERT INTO bare VALUES ({}, 3)",
    "typed": "INSERT INTO typed (id) VALUES ({})",
    "ranged": "INSERT INTO ranged (id) VALUES ({})",
    "measure": "INSERT INTO measure VALUES ({}, 3)",
}


@dataclass(frozen=True, slots=True)
class Case:
    """DDL that changes rows of a followed table.

    Attributes:
        table: the followed table.
        said: what the error says.
        statements: each in a transaction of its own.
    """

    table: str
    said: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.statements)


def told(table: str, said: str, *statements: str) -> Case:
    return Case(table, said, statements)


_ATTACH = "ALTER TABLE measure ATTACH PARTITION alone FOR VALUES FROM (20) TO (30)"
TOLD = [
    told("measure", "the partition alone was attached to measure with rows in it", _ATTACH),
    told(
        "measure", "the partition late of measure was detached", "ALTER TABLE measure DETACH PARTITION late"
    ),
    told(
        "measure",
        "the partition late of measure was detached",
        "ALTER TABLE measure DETACH PARTITION late CONCURRENTLY",
    ),
    told("measure", "the partition late of measure was detached", "DROP TABLE late"),
    told(
        "measure",
        "the partition late was attached to measure with rows in it",
        "ALTER TABLE measure DETACH PARTITION late",
        "UPDATE late SET n = 7",
        "ALTER TABLE measure ATTACH PARTITION late FOR VALUES FROM (10) TO (20)",
    ),
    told(
        "measure",
        "the partition alone was attached to measure with rows in it",
        "CREATE TABLE between (LIKE measure INCLUDING ALL) PARTITION BY RANGE (at)",
        "ALTER TABLE between ATTACH PARTITION alone FOR VALUES FROM (20) TO (30)",
        "ALTER TABLE measure ATTACH PARTITION between FOR VALUES FROM (20) TO (40)",
    ),
    told("one", "column n of the table one was altered", "ALTER TABLE one ALTER n TYPE int USING n * 2"),
    told("bare", "column n of the table bare was altered", "ALTER TABLE bare ALTER n TYPE int USING n * 2"),
    told("measure", "column n of the table measure", "ALTER TABLE measure ALTER n TYPE int USING n * 2"),
    told(
        "one",
        r"was character varying\(9\), and is character varying\(3\) now",
        "ALTER TABLE one ALTER short TYPE varchar(3) USING upper(short)",
    ),
    told("one", "was integer, and is bigint now", "ALTER TABLE one ALTER n TYPE bigint USING n * 2"),
    told("one", "was text, and is", "ALTER TABLE one ALTER body TYPE char(9)"),
    told(
        "one",
        "one was in another schema, and is back",
        "CREATE SCHEMA away",
        "ALTER TABLE one SET SCHEMA away",
        "ALTER TABLE away.one SET SCHEMA public",
    ),
    told("typed", "the values of the column mood", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    told(
        "typed",
        "the column mood of the table typed",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TYPE mood RENAME VALUE 'glad' TO 'sad'",
        "ALTER TYPE mood RENAME VALUE 'blue' TO 'glad'",
    ),
    told("ranged", "the values of the column span", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    told("typed", "the values of the column pair", "ALTER TYPE pair ADD ATTRIBUTE z int"),
    told("one", "the column n of the table one", "ALTER TABLE one DROP n", "ALTER TABLE one ADD n int"),
    told(
        "one",
        "the column n of the table one",
        "ALTER TABLE one ADD m int",
        "ALTER TABLE one RENAME n TO t",
        "ALTER TABLE one RENAME m TO n",
        "ALTER TABLE one RENAME t TO m",
    ),
]
HARMLESS = [
    ("CREATE TABLE more PARTITION OF measure FOR VALUES FROM (30) TO (40)",),
    (
        "CREATE TABLE more PARTITION OF measure FOR VALUES FROM (30) TO (40)",
        "INSERT INTO measure VALUES (31, 1)",
        "VACUUM FREEZE more",
    ),
    ("TRUNCATE alone", _ATTACH),
    ("ALTER TABLE early RENAME TO earliest",),
    ("CREATE INDEX ON measure (n)",),
    ("VACUUM FULL measure", "CLUSTER early USING early_pkey"),
    ("VACUUM FULL bare", "ALTER TABLE bare ALTER n SET DEFAULT 9"),
    ("CLUSTER bare USING bare_pkey",),
    ("TRUNCATE bare",),
    ("TRUNCATE one", "ALTER TABLE one ALTER n SET NOT NULL"),
    ("VACUUM FULL one", "ALTER TABLE one ALTER n SET NOT NULL, ALTER n SET STATISTICS 9"),
    ("COMMENT ON COLUMN one.n IS 'x'", "COMMENT ON TABLE one IS 'x'", "ANALYZE one"),
    ("CREATE INDEX ON one (n)", "REINDEX TABLE one", "GRANT SELECT (n) ON one TO PUBLIC"),
    ("ALTER TABLE one ADD more int",),
    ("ALTER TABLE one ADD more int DEFAULT 5, ADD extra text",),
    ("ALTER TABLE one ADD more uuid DEFAULT gen_random_uuid()",),
    ("ALTER TABLE measure ADD more uuid DEFAULT gen_random_uuid()",),
    ('ALTER TABLE one ALTER body TYPE text COLLATE "C"',),
    ("ALTER TABLE one ALTER n SET NOT NULL", "ALTER TABLE one ALTER n ADD GENERATED ALWAYS AS IDENTITY"),
    ("ALTER TABLE one DROP body",),
    ("ALTER TABLE one RENAME body TO story",),
    ("ALTER TABLE one RENAME body TO story", "ALTER TABLE one RENAME story TO body"),
    ("ALTER TABLE one ALTER short TYPE varchar(20)", "VACUUM FULL one"),
    ("ALTER TABLE one ALTER short TYPE text",),
    ("ALTER TABLE one ADD CHECK (n > 0)", "ALTER TABLE one SET (fillfactor = 50)"),
    ("ALTER TABLE one REPLICA IDENTITY FULL", "ALTER TABLE one OWNER TO CURRENT_USER"),
    ("ALTER TABLE one RENAME TO away", "ALTER TABLE away RENAME TO one"),
    ("ALTER TABLE one ALTER body SET STORAGE EXTERNAL", "UPDATE one SET n = n + 1"),
    ("ALTER TYPE mood ADD VALUE 'calm' BEFORE 'glad'",),
    ("CREATE TRIGGER t BEFORE UPDATE ON one EXECUTE FUNCTION suppress_redundant_updates_trigger()",),
]


REUSED = [
    ("ALTER TABLE bare ADD x int", "INSERT INTO bare VALUES (5, 5, 5)", "ALTER TABLE bare DROP x",
     "ALTER TABLE bare ADD x int", "UPDATE bare SET n = 9 WHERE id = 1"),
    ("ALTER TABLE bare ADD x int", "INSERT INTO bare VALUES (5, 5, 5)", "ALTER TABLE bare DROP x",
     "ALTER TABLE bare ADD x int DEFAULT 7"),
    ("ALTER TABLE bare ADD x int", "INSERT INTO bare VALUES (5, 5, 5)", "ALTER TABLE bare DROP x",
     "ALTER TABLE bare ADD y int DEFAULT 7", "ALTER TABLE bare RENAME y TO x"),
    ("ALTER TABLE bare ADD x int", "INSERT INTO bare VALUES (5, 5, 5)", "ALTER TABLE bare RENAME x TO y",
     "ALTER TABLE bare ADD x int DEFAULT 7"),
    ("ALTER TABLE bare ADD x int, ADD y int", "INSERT INTO bare VALUES (5, 5, 5, 6)",
     "ALTER TABLE bare RENAME x TO z", "ALTER TABLE bare RENAME y TO x", "ALTER TABLE bare RENAME z TO y"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_watch, "_SECONDS", 0.0)
    monkeypatch.setattr(catalog_watch, "_SHARE", 0)


def begin(query: Callable[..., Query], table: str, **options: str) -> Query:
    """A query that has read what was there, and one change."""
    started = query(tables=table, **{**_START, **options})
    started.sql(*_TABLES)
    started.settle()
    write(started, table, 3)
    started.take(1)
    return started


def write(started: Query, table: str, key: int) -> None:
    started.sql(_WRITES[table].format(key))


def alter(started: Query, statements: Iterable[str]) -> None:
    started.sql(*(sql.format(p=started.slot) for sql in statements))


def ends(started: Query, said: str) -> None:
    """The query ends, says what happened, and what to do."""
    with pytest.raises(HeadraceError, match=said) as caught:
        started.until(lambda: False)
    assert caught.value.kind is Kind.SCHEMA_CHANGED
    assert "onUnloggedChange=snapshot" in caught.value.remedy


@pytest.mark.long
@pytest.mark.parametrize("case", TOLD, ids=str)
def test_rows_that_change_beside_the_log_end_a_running_query(query: Callable[..., Query], case: Case) -> None:
    started = begin(query, case.table, envelope="changes")
    alter(started, case.statements)
    ends(started, case.said)
    started.restart()
    ends(started, case.said)


@pytest.mark.long
def test_a_label_that_is_renamed_within_ranges_ends_a_query(query: Callable[..., Query]) -> None:
    started = begin(query, "ranged", envelope="changes")
    alter(started, ["ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"])
    ends(started, "the values of the column span")


@pytest.mark.long
@pytest.mark.parametrize("case", TOLD, ids=str)
def test_rows_that_changed_while_a_query_was_stopped_end_its_start(
    query: Callable[..., Query], case: Case
) -> None:
    started = begin(query, case.table, envelope="elements" if case.table == "measure" else "rows")
    started.stop()
    write(started, case.table, 4)
    alter(started, case.statements)
    write(started, case.table, 5)
    ends(started, case.said)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in TOLD if "CONCURRENTLY" not in str(case)], ids=str)
def test_rows_that_change_in_a_transaction_with_others_end_the_query(
    query: Callable[..., Query], case: Case
) -> None:
    started = begin(query, case.table, envelope="changes")
    rows = [_WRITES[case.table].format(key) for key in (4, 5)]
    statements = [rows[0], *case.statements, rows[1]]
    started.stop()
    with connect(started.url, autocommit=False) as connection:
        for sql in statements:
            execute(connection, sql)
        connection.commit()
    ends(started, case.said)


@pytest.mark.long
@pytest.mark.parametrize("statements", HARMLESS, ids="; ".join)
@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_what_changes_no_row_ends_no_query(
    query: Callable[..., Query], statements: Sequence[str], envelope: str
) -> None:
    """Looked at while the query runs, and by its next start; the rows come as the log has them."""
    words = {word for sql in statements for word in re.findall(r"\w+", sql)}
    names = {"mood": "typed", "early": "measure", **{name: name for name in _WRITES}}
    table = next(table for word, table in names.items() if word in words)
    options = {"onSchemaChange": "ignore"} if envelope == "rows" else {}
    started = begin(query, table, envelope=envelope, **options)
    alter(started, statements)
    started.step()
    started.stop()
    before = len(started.rows)
    write(started, table, 4)
    started.until(lambda: len(started.rows) > before)
    started.step()


@pytest.mark.long
@pytest.mark.parametrize("case", TOLD, ids=str)
@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_a_table_is_read_again_where_that_is_asked_for(
    query: Callable[..., Query], case: Case, envelope: str
) -> None:
    """A truncate, then every row: whoever takes each row at its word has what the table has."""
    started = begin(query, case.table, envelope=envelope, startingOffsets="snapshot")
    started.stop()
    write(started, case.table, 4)
    alter(started, case.statements)
    write(started, case.table, 5)
    started.restart(onUnloggedChange="snapshot")
    started.until(lambda: copied(started) == rows_of(started, case.table))
    write(started, case.table, 6)
    started.until(lambda: copied(started) == rows_of(started, case.table))
    started.restart(onUnloggedChange="fail")
    started.step()


def test_a_partition_that_was_truncated_before_its_table_is_read_again_ends_nothing(
    query: Callable[..., Query],
) -> None:
    """A row of `envelope=rows` cannot say which rows are gone, and here none has to."""
    started = begin(query, "measure", envelope="rows")
    started.stop()
    started.sql("TRUNCATE early", "ALTER TABLE measure ATTACH PARTITION alone FOR VALUES FROM (20) TO (30)")
    started.restart(onUnloggedChange="snapshot")
    started.until(lambda: copied(started) == rows_of(started, "measure"))
    write(started, "measure", 6)
    started.until(lambda: copied(started) == rows_of(started, "measure"))


@pytest.mark.parametrize("statements", REUSED, ids="; ".join)
@pytest.mark.parametrize("envelope", ["rows", "changes"])
@pytest.mark.parametrize("runs", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_name_that_two_columns_had_ends_the_query(
    query: Callable[..., Query], statements: Sequence[str], envelope: str, *, runs: bool
) -> None:
    """Also where `rows` ends with the first of the columns, and begins again with the second."""
    started = begin(query, "bare", envelope=envelope, startingOffsets="snapshot")
    if not runs:
        started.stop()
    alter(started, statements)
    with pytest.raises(HeadraceError) as caught:
        started.until(lambda: False)
    assert caught.value.kind is Kind.SCHEMA_CHANGED
    started.restart()
    ends(started, "bare")
    started.restart(onUnloggedChange="snapshot")
    started.until(lambda: copied(started) == rows_of(started, "bare"))


def test_a_name_that_the_log_has_is_known_before_the_catalog_is_looked_at(
    query: Callable[..., Query],
) -> None:
    """Its column may be renamed, and another one be added under the name, before the first look."""
    started = begin(query, "bare", envelope="changes")
    *first, rename, add = REUSED[3]
    alter(started, first)
    named = started.reader._tables.columns
    assert named is not None
    started.until_true(lambda: "x" in named.known[TableName("public", "bare")])
    alter(started, (rename, add))
    ends(started, "the column x of the table bare was dropped and added again")


@pytest.mark.parametrize("temporary", ["true", "false"])
def test_names_that_two_columns_have_again_are_told_after_a_table_was_read_again(
    query: Callable[..., Query], temporary: str
) -> None:
    """The reader of a temporary slot goes on meanwhile: it cannot be opened anew."""
    options = {"envelope": "changes", "startingOffsets": "snapshot", "onUnloggedChange": "snapshot"}
    started = begin(query, "bare", temporarySlot=temporary, **options)
    with _not_looked_at():
        for key, name in ((5, "x"), (6, "y")):
            alter(started, [sql.replace(" x", f" {name}").replace("5,", f"{key},") for sql in REUSED[1]])
            write(started, "bare", key + 10)
            started.until(lambda: copied(started) == rows_of(started, "bare"))
    started.step()


@pytest.mark.long
def test_a_name_that_two_columns_had_in_two_runs_ends_the_query(query: Callable[..., Query]) -> None:
    started = begin(query, "bare", envelope="changes")
    for sql in REUSED[0][:-2]:
        started.sql(sql)
        started.step()
    started.restart()
    write_again = "INSERT INTO bare VALUES (6, 6)"
    started.sql(write_again)
    started.take(1)
    started.sql("ALTER TABLE bare ADD x int")
    ends(started, "the column x of the table bare was dropped and added again")


@pytest.mark.parametrize("envelope", ["rows", "changes"])
def test_a_column_that_nobody_asked_for_may_change(query: Callable[..., Query], envelope: str) -> None:
    columns = "id" if envelope == "rows" else '{"bare": ["id"]}'
    started = begin(query, "bare", envelope=envelope, columns=columns)
    started.sql("ALTER TABLE bare ALTER n TYPE bigint USING n * 2", "INSERT INTO bare VALUES (4)")
    started.take(1)
    started.restart()
    started.sql("INSERT INTO bare VALUES (5)")
    started.take(1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            ("DROP TABLE bare", "CREATE TABLE bare (id int PRIMARY KEY, n int)"),
            "was dropped and created again",
        ),
        (
            (
                "CREATE TABLE other (id int PRIMARY KEY, n int)",
                "ALTER TABLE bare RENAME TO former",
                "ALTER TABLE other RENAME TO bare",
            ),
            "was dropped and created again",
        ),
        (("ALTER TABLE bare SET UNLOGGED",), "is unlogged now"),
        (
            ("ALTER TABLE one SET UNLOGGED", "UPDATE one SET n = 0", "ALTER TABLE one SET LOGGED"),
            "may have been unlogged meanwhile",
        ),
        (
            ("ALTER TABLE bare SET UNLOGGED", "UPDATE bare SET n = 0", "ALTER TABLE bare SET LOGGED"),
            "may have been unlogged meanwhile",
        ),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_tables_of_a_publication_for_all(
    query: Callable[..., Query], statements: Sequence[str], said: str, *, runs: bool
) -> None:
    """Such a publication is no hindrance for what it would be where it names the table."""
    started = query(tables="one, bare", envelope="changes")
    started.sql(*_TABLES, f"CREATE PUBLICATION {started.slot} FOR ALL TABLES")
    started.settle()
    write(started, "bare", 3)
    started.until(lambda: len(started.rows) == 5)
    if not runs and "is unlogged" not in said:  # a start refuses such a table
        started.stop()
    alter(started, statements)
    ends(started, said)


@pytest.mark.parametrize("runs", [True, False])
def test_a_partition_that_goes_before_anybody_has_looked_ends_the_query(
    query: Callable[..., Query], *, runs: bool
) -> None:
    """The catalog keeps no trace of it; the log has named it."""
    started = begin(query, "measure", envelope="changes")
    with _not_looked_at():
        started.sql(
            "CREATE TABLE more PARTITION OF measure FOR VALUES FROM (30) TO (40)",
            "INSERT INTO measure VALUES (31, 1)",
        )
        started.take(1)
        started.sql("DROP TABLE more")
        started.step()
    if not runs:
        started.restart()
    ends(started, "the partition more of measure was detached or dropped")


@pytest.mark.parametrize("runs", [True, False])
def test_a_partition_that_the_log_named_before_anybody_has_looked_is_told_with_its_rows(
    query: Callable[..., Query], *, runs: bool
) -> None:
    """The log names it with its first change, and has none of the rows that it came with."""
    started = begin(query, "measure", envelope="changes")
    with _not_looked_at():
        started.sql(_ATTACH, "INSERT INTO measure VALUES (22, 1)")
        started.take(1)
    if not runs:
        started.restart()
    ends(started, "the partition alone was attached to measure with rows in it")


@contextmanager
def _not_looked_at() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CatalogWatch, "look", lambda _: [])
        yield


@pytest.mark.long
def test_rows_of_a_partition_that_goes_may_stay(query: Callable[..., Query]) -> None:
    """As where old partitions are dropped every day, and the copy is an archive; all else is told."""
    started = begin(query, "measure", envelope="changes", onUnloggedChange="keep")
    started.sql("DROP TABLE late")
    write(started, "measure", 4)
    started.take(1)
    started.sql(_ATTACH)
    ends(started, "alone was attached")


@pytest.mark.long
@pytest.mark.parametrize("stops", [True, False])
def test_whoever_does_not_look_is_told_only_of_what_comes_later(
    query: Callable[..., Query], *, stops: bool
) -> None:
    started = begin(query, "measure", envelope="changes")
    started.sql(_ATTACH)
    started.restart(onUnloggedChange="ignore")
    started.step()
    if not stops:
        write(started, "measure", 4)
        started.take(1)
    assert "catalog" not in started.offsets[-1]
    started.restart(onUnloggedChange="fail")
    write(started, "measure", 5)
    started.take(1)
    started.sql("DROP TABLE late")
    ends(started, "late of measure was detached or dropped")


@pytest.mark.long
def test_a_checkpoint_of_an_earlier_version_goes_on(query: Callable[..., Query]) -> None:
    started = begin(query, "measure", envelope="changes")
    started.stop()
    del started.offsets[-1]["catalog"]
    started.sql(_ATTACH)
    write(started, "measure", 4)
    started.take(1)
    started.sql("DROP TABLE late")
    ends(started, "late of measure was detached or dropped")


@pytest.mark.long
def test_a_partition_that_is_locked_holds_no_query_up(
    query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known yet is asked again."""
    monkeypatch.setattr("headrace.datasources.catalog_watch._LOCK_SECONDS", 0.1)
    started = begin(query, "measure", envelope="changes")
    with connect(started.url, autocommit=False) as holding:
        started.sql(_ATTACH)
        execute(holding, "LOCK TABLE alone IN ACCESS EXCLUSIVE MODE")
        write(started, "measure", 4)
        started.take(1)
        holding.rollback()
    ends(started, "alone was attached")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE heir INHERIT bare",
        pytest.param("CREATE TABLE son () INHERITS (bare)", marks=pytest.mark.long),
    ],
)
def test_a_table_that_comes_to_inherit_ends_the_query(query: Callable[..., Query], statement: str) -> None:
    started = begin(query, "bare")
    started.sql("CREATE TABLE heir (id int NOT NULL, n int)", "INSERT INTO heir VALUES (7, 7)", statement)
    with pytest.raises(HeadraceError, match="inherits from bare") as caught:
        started.until(lambda: False)
    assert caught.value.kind is Kind.BINDING


def test_columns_that_differ_in_case_alone_are_refused_by_name(query: Callable[..., Query]) -> None:
    started = query(tables="cased")
    started.sql('CREATE TABLE cased (id int PRIMARY KEY, name text, "Name" text)')
    with pytest.raises(HeadraceError, match="cased has the columns 'name' and 'Name'") as caught:
        started.step()
    assert caught.value.kind is Kind.USAGE
    started.restart(excludeColumns='"Name"')
    started.settle()
    started.sql("INSERT INTO cased VALUES (1, 'a', 'b')")
    assert [row["name"] for row in started.take(1)] == ["a"]


def rows_of(started: Query, table: str) -> dict[str, Mapping[str, object]]:
    """The table's rows by key, as texts."""
    with connect(started.url) as connection:
        found = execute(connection, f"SELECT row_to_json(whole)::text FROM {table} AS whole")
    return dict(_keyed(json.loads(text)) for (text,) in found)


def copied(started: Query) -> dict[str, Mapping[str, object]]:
    """What a reader has who takes each row at its word."""
    found: dict[str, Mapping[str, object]] = {}
    for row in started.rows:
        if (row["op"] if "op" in row else row["_change_type"]) in {"t", "truncate"}:
            found.clear()
            continue
        values = row["after"] if "op" in row else _own(row)
        key, texts = _keyed(dict(values))
        found[key] = texts
    return found


def _own(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _keyed(row: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    texts = {name: _text(value) for name, value in row.items() if name != "pair"}
    return str(texts.get("at") or texts.get("id")), texts


def _text(value: object) -> str | None:
    if isinstance(value, dict):  # a range, as the server writes it where both of its bounds belong to it
        return "[{lower},{upper}]".format(**value)
    return None if value is None else str(value).strip()
