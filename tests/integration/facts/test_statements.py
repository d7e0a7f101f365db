"""Every kind of statement, end to end: from SQL on each server to changes with both sides."""

from __future__ import annotations

from headrace.model.changes import Op
from headrace.model.names import TableName
from integration.capture.following import Source, take
from support.changes import Change


def sides(change: Change) -> tuple[Op, dict[str, str | None] | None, dict[str, str | None] | None]:
    return change.op, change.before, change.after


def test_a_default_identity_shows_the_new_row_and_the_old_key(source: Source) -> None:
    """Drasi's hole 4: an UPDATE of the key leaves the old row behind."""
    source.sql("CREATE TABLE t (id int PRIMARY KEY, name text, n numeric)")
    start = source.publish()
    source.sql(
        "INSERT INTO t VALUES (1, 'Zoë', NULL), (2, '', 1.50)",
        "UPDATE t SET n = 7 WHERE id = 1",
        "UPDATE t SET id = 3 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    changes, _ = take(source.stream(start), start, 5)
    assert [sides(change) for change in changes] == [
        (Op.INSERT, None, {"id": "1", "name": "Zoë", "n": None}),
        (Op.INSERT, None, {"id": "2", "name": "", "n": "1.50"}),
        (Op.UPDATE, None, {"id": "1", "name": "Zoë", "n": "7"}),
        (Op.UPDATE, {"id": "1"}, {"id": "3", "name": "Zoë", "n": "7"}),
        (Op.DELETE, {"id": "2"}, None),
    ]
    positions = [(change.commit_lsn, change.commit_seq) for change in changes]
    assert positions == sorted(set(positions))
    assert [sequence for _, sequence in positions] == [1, 2, 1, 1, 1]


def test_a_full_identity_shows_the_whole_old_row(source: Source) -> None:
    source.sql("CREATE TABLE t (a int, b text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1, NULL)", "UPDATE t SET a = 2", "DELETE FROM t")
    changes, _ = take(source.stream(start), start, 3)
    assert [sides(change) for change in changes] == [
        (Op.INSERT, None, {"a": "1", "b": None}),
        (Op.UPDATE, {"a": "1", "b": None}, {"a": "2", "b": None}),
        (Op.DELETE, {"a": "2", "b": None}, None),
    ]


def test_an_index_identity_shows_its_columns_where_they_change(source: Source) -> None:
    """Flusso's hole 4: a child that moves must name its old parent."""
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, owner int NOT NULL, n int)",
        "CREATE UNIQUE INDEX t_owner ON t (owner, id)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_owner",
    )
    start = source.publish()
    source.sql(
        "INSERT INTO t VALUES (1, 10, 0)", "UPDATE t SET n = 1", "UPDATE t SET owner = 11", "DELETE FROM t"
    )
    changes, _ = take(source.stream(start), start, 4)
    assert [change.before for change in changes] == [
        None,
        None,
        {"id": "1", "owner": "10"},
        {"id": "1", "owner": "11"},
    ]


def test_an_identity_of_nothing_still_shows_inserts(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING")
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1), (2)")
    changes, _ = take(source.stream(start), start, 2)
    assert [change.after for change in changes] == [{"id": "1"}, {"id": "2"}]


def test_an_unchanged_toasted_value_is_absent_or_comes_from_the_old_row(source: Source) -> None:
    """Drasi's hole 4: an unchanged TOASTed value becomes NULL, also with FULL."""
    for name in ("keyed", "whole"):
        source.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int, long text)",
            f"ALTER TABLE {name} ALTER COLUMN long SET STORAGE EXTERNAL",
        )
    source.sql("ALTER TABLE whole REPLICA IDENTITY FULL")
    start = source.publish()
    for name in ("keyed", "whole"):
        source.sql(
            f"INSERT INTO {name} VALUES (1, 1, repeat('x', 9000))",
            f"UPDATE {name} SET n = 2",
            f"UPDATE {name} SET id = 2",
        )
    changes, _ = take(source.stream(start), start, 6)
    long = "x" * 9000
    assert [change.after for change in changes] == [
        {"id": "1", "n": "1", "long": long},
        {"id": "1", "n": "2"},
        {"id": "2", "n": "2"},
        {"id": "1", "n": "1", "long": long},
        {"id": "1", "n": "2", "long": long},
        {"id": "2", "n": "2", "long": long},
    ]


def test_composite_keys_and_names_in_mixed_case_keep_their_form(source: Source) -> None:
    """Flusso's hole 12: names in mixed case cannot be addressed."""
    source.sql(
        'CREATE SCHEMA "My Shop"',
        'CREATE TABLE "My Shop"."Line""Items" ("B" int, n int, "a" text, PRIMARY KEY ("a", "B"))',
    )
    start = source.publish()
    source.sql(
        """INSERT INTO "My Shop"."Line""Items" VALUES (1, 0, 'k')""", 'DELETE FROM "My Shop"."Line""Items"'
    )
    changes, _ = take(source.stream(start), start, 2)
    assert {change.table for change in changes} == {TableName("My Shop", 'Line"Items')}
    assert list((changes[1].before or {}).items()) == [("B", "1"), ("a", "k")]


def test_a_truncate_names_every_table_that_it_empties(source: Source) -> None:
    """Flusso's hole 8: TRUNCATE is only logged; drasi's hole 4: it is ignored."""
    source.sql(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent)",
    )
    start = source.publish()
    source.transaction("INSERT INTO parent VALUES (1)", "TRUNCATE parent CASCADE")
    changes, _ = take(source.stream(start), start, 3)
    assert {(c.table.name, c.op, c.commit_seq) for c in changes[1:]} == {
        ("parent", Op.TRUNCATE, 2),
        ("child", Op.TRUNCATE, 2),
    }


def test_work_that_is_rolled_back_is_never_seen(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY)")
    start = source.publish()
    source.transaction("INSERT INTO t VALUES (1)", "ROLLBACK")
    source.transaction(
        "INSERT INTO t VALUES (2)",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO s",
        "INSERT INTO t VALUES (4)",
    )
    changes, _ = take(source.stream(start), start, 2)
    assert [change.after for change in changes] == [{"id": "2"}, {"id": "4"}]


def test_a_table_may_change_its_shape_while_it_is_followed(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, old text)")
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1, 'x')")
    source.transaction(
        "ALTER TABLE t ADD COLUMN extra int DEFAULT 5",
        "ALTER TABLE t RENAME COLUMN old TO new",
        "INSERT INTO t VALUES (2, 'y')",
    )
    source.sql("ALTER TABLE t RENAME TO moved", "UPDATE moved SET new = 'z' WHERE id = 1")
    changes, _ = take(source.stream(start), start, 3)
    assert [(change.table.name, change.after) for change in changes] == [
        ("t", {"id": "1", "old": "x"}),
        ("t", {"id": "2", "new": "y", "extra": "5"}),
        ("moved", {"id": "1", "new": "z", "extra": "5"}),
    ]


def test_values_have_one_form_whatever_the_database_prefers(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, raw bytea, f float8, d date)")
    database = source.url.rsplit("/", 1)[1]
    source.sql(
        f"ALTER DATABASE {database} SET timezone = 'Asia/Kolkata'",
        f"ALTER DATABASE {database} SET datestyle = 'German'",
        f"ALTER DATABASE {database} SET bytea_output = 'escape'",
    )
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1, '2026-01-02 03:04:05Z', '\\x00ff', 0.1, '2026-01-02')")
    changes, _ = take(source.stream(start), start, 1)
    assert changes[0].after == {
        "id": "1",
        "at": "2026-01-02 03:04:05+00",
        "raw": "\\x00ff",
        "f": "0.1",
        "d": "2026-01-02",
    }
