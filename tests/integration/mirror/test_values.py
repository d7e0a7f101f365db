"""Are values in the lake that a column's type does not hold, as the file says, and told of?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.config.secret import Secret
from headrace.errors import HeadraceError, Kind
from headrace.mirror.formats import open_lake
from headrace.model.names import TableName
from support.followed_mirror import FollowedMirror, run
from support.lake import FORMATS
from support.slots import prepared_database

SLOT = "mirror_values"
T = TableName("public", "t")
_SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2), sizes int[], d date, at timestamp)",
    "INSERT INTO t VALUES (1, 1.5, '{1}', '2026-01-01', '2026-01-01 10:00')",
)
ODD = "({id}, 'NaN', '{{{{1,2}},{{3,4}}}}', 'infinity', '2026-02-01 11:00:00.5')"
LOADED, LOGGED = ("INSERT INTO t VALUES " + ODD.format(id=number) for number in (2, 3))


@pytest.fixture
def url(database: str) -> Iterator[str]:
    with prepared_database(database, *_SETUP) as prepared:
        yield prepared


def mirror_of(url: str, folder: Path, part: MirroredTables, kind: Format = "delta") -> FollowedMirror:
    return FollowedMirror.of(url, folder, SLOT, part, kind=kind)


def rows_of(folder: Path, kind: Format = "delta") -> dict[int, dict[str, object]]:
    """The lake's rows, with dates as numbers of days."""
    part = MirroredTables(tables=("public.t",))
    lake = open_lake(MirrorConfig(location=str(folder), format=kind, tables=(part,))).open(T)
    assert lake is not None
    rows = pa.Table.from_batches(lake.rows())
    if pa.types.is_date32(rows.schema.field("d").type):
        rows = rows.set_column(rows.schema.get_field_index("d"), "d", rows.column("d").cast(pa.int32()))
    return {row["id"]: row for row in rows.to_pylist()}


@pytest.mark.parametrize("kind", FORMATS)
def test_values_that_do_not_fit_are_null_where_the_file_says_so_and_named_by_their_keys(
    kind: Format, url: str, tmp_path: Path
) -> None:
    run(url, LOADED)
    policy = {"n": "null", "sizes": "null", "d": "null"}
    part = MirroredTables.model_validate({"tables": ["public.t"], "on_value": policy})
    mirror = mirror_of(url, tmp_path, part, kind)
    _, tables, told = mirror.prepare()
    assert tables == [T]
    run(url, LOGGED, "UPDATE t SET n = 2 WHERE id = 1")
    texts = [*told.texts, *mirror.follow()]
    for column in policy:
        assert (
            f"the lake's type cannot hold a value of t.{column} (id = 2): NULL is in the lake (on_value)"
            in texts
        )
        assert (
            f"the lake's type cannot hold a value of t.{column} (id = 3): NULL is in the lake (on_value)"
            in texts
        )
    rows = rows_of(tmp_path, kind)
    for number in (2, 3):
        assert [rows[number][name] for name in policy] == [None, None, None]
    assert (str(rows[1]["n"]), rows[1]["sizes"], rows[1]["d"]) == ("2.00", [1], 20454)
    assert mirror.wrong() == []


def test_a_table_is_read_again_where_another_policy_gives_its_values_others(url: str, tmp_path: Path) -> None:
    def policy(**on_value: str) -> FollowedMirror:
        part = {"tables": ["public.t"], "on_value": on_value}
        return mirror_of(url, tmp_path, MirroredTables.model_validate(part))

    run(url, "INSERT INTO t VALUES (2, 1, NULL, 'infinity', NULL)")
    policy().prepare()
    # All numbers did fit; an infinite day did, too, and is to be NULL now.
    assert "loading t" not in policy(n="null").prepare()[2].texts
    assert "loading t" in policy(n="null", d="null").prepare()[2].texts
    assert rows_of(tmp_path)[2]["d"] is None
    assert policy(n="null", d="null").prepare()[2].texts == []
    assert policy(n="null", d="null").wrong() == []
    run(url, "UPDATE t SET n = 'NaN'")
    policy(n="null", d="null").follow()
    assert "2 values of t.n" in policy(d="null").waiting()


def test_a_masked_key_is_in_no_message_and_no_note(url: str, tmp_path: Path) -> None:
    """A value of a change does not fit, and the bounds of the partitions are the key's values."""
    run(
        url,
        "CREATE TABLE people (email text PRIMARY KEY, n numeric(10,2)) PARTITION BY LIST (email)",
        "CREATE TABLE ann PARTITION OF people FOR VALUES IN ('ann@example')",
        "INSERT INTO people VALUES ('ann@example', 1)",
    )
    part = MirroredTables(tables=("public.people",), masks={"email": "sha256"})
    names = {"location": str(tmp_path), "slot": SLOT, "publication": SLOT, "mask_salt": "given"}
    config = MirrorConfig.model_validate({**names, "tables": (part,)})
    mirror = FollowedMirror(url, config.model_copy(update={"mask_salt": Secret("pepper")}))
    mirror.prepare()
    run(url, "UPDATE people SET n = 'NaN'")
    told = " ".join(mirror.follow())
    hashed = hashlib.sha256(b"pepperann@example").hexdigest()
    assert f"cannot hold a value of people.n (email = {hashed})" in told
    notes = pl.read_delta(str(tmp_path / "headrace_positions"))
    assert hashed in str(notes["waits_for"].to_list())
    assert "ann@example" not in told + str(notes.rows())


def test_a_column_that_was_null_where_values_did_not_fit_is_read_in_a_type_that_they_fit(
    url: str, tmp_path: Path
) -> None:
    run(url, "INSERT INTO t (id, n) VALUES (2, 'NaN')")
    part = MirroredTables.model_validate({"tables": ["public.t"], "on_value": {"n": "null"}})
    mirror = mirror_of(url, tmp_path, part)
    mirror.prepare()
    run(url, "ALTER TABLE t ALTER n TYPE numeric", "INSERT INTO t (id, n) VALUES (3, 'NaN')")
    mirror.follow()
    mirror.prepare()
    assert [rows_of(tmp_path)[number]["n"] for number in (1, 2, 3)] == ["1.50", "NaN", "NaN"]


def test_a_row_whose_key_is_no_moment_of_pythons_is_named_too(url: str, tmp_path: Path) -> None:
    run(url, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, d, at)")
    part = MirroredTables.model_validate({"tables": ["public.t"], "on_value": {"n": "null"}})
    mirror = mirror_of(url, tmp_path, part)
    mirror.prepare()
    run(url, "INSERT INTO t VALUES (2, 'NaN', NULL, 'infinity', 'infinity')")
    [told] = [text for text in mirror.follow() if "cannot hold" in text]
    assert "a value of t.n (id = 2 d = " in told
    assert mirror.wrong() == []


def test_a_column_that_is_to_be_a_text_holds_every_value(url: str, tmp_path: Path) -> None:
    run(url, LOADED)
    part = MirroredTables.model_validate(
        {
            "tables": ["public.t"],
            "on_value": {"n": "text"},
            "types": {"sizes": "text", "d": "text", "at": "timestamptz"},
        }
    )
    mirror = mirror_of(url, tmp_path, part)
    assert mirror.prepare()[1] == [T]
    run(url, LOGGED, "ALTER TABLE t ADD later numeric(4,1) DEFAULT 1.5")
    mirror.follow()
    rows = rows_of(tmp_path)
    for number in (2, 3):
        assert [rows[number][name] for name in ("n", "sizes", "d")] == ["NaN", "{{1,2},{3,4}}", "infinity"]
        assert str(rows[number]["at"]) == "2026-02-01 11:00:00.500000+00:00"
    assert mirror.wrong() == []


def test_another_type_for_a_loaded_column_reads_its_table_again(url: str, tmp_path: Path) -> None:
    mirror_of(url, tmp_path, MirroredTables(tables=("public.t",))).prepare()
    for types in ({"n": "text", "at": "timestamptz"}, {}):
        part = MirroredTables.model_validate({"tables": ["public.t"], "types": types})
        mirror = mirror_of(url, tmp_path, part)
        assert "loading t" in mirror.prepare()[2].texts
        assert mirror.wrong() == []
    assert str(rows_of(tmp_path)[1]["n"]) == "1.50"


def test_a_table_that_waits_for_a_value_says_which_row_has_it(url: str, tmp_path: Path) -> None:
    mirror = mirror_of(url, tmp_path, MirroredTables(tables=("public.t",)))
    mirror.prepare()
    run(url, LOGGED)
    [told] = [text for text in mirror.follow() if "waits" in text]
    assert "the lake's type for numeric(10,2) cannot hold a value of t.n (id = 3)" in told
    assert 'on_value = { n = "null" }' in told
    follower, _, _ = mirror.prepare()
    error = follower.waiting.error()
    assert error is not None
    assert error.kind is Kind.VALUE
    assert "(id = 3)" in error.cause


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"types": {"id": "timestamptz"}}, "the column id of t is not a timestamp"),
        ({"types": {"n_": "text"}}, 'types, on_value: no table of its .* has a column "n_"'),
        ({"on_value": {"n_": "null"}}, 'types, on_value: no table of its .* has a column "n_"'),
    ],
)
def test_types_that_a_table_cannot_have_are_refused(
    option: dict[str, object], told: str, url: str, tmp_path: Path
) -> None:
    part = MirroredTables.model_validate({"tables": ["public.t"], **option})
    with pytest.raises(HeadraceError, match=told):
        mirror_of(url, tmp_path, part).prepare()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["regclass", "regclass[]", "regtype", "named"])
def test_a_column_that_shows_names_of_objects_lets_its_table_wait_unless_it_is_to_be_a_text(
    kind: str, url: str, tmp_path: Path
) -> None:
    """RENAME of what it names alters what every row shows, and neither rows nor log say so."""
    value = {"regclass[]": "'{t}'", "regtype": "'mood'"}.get(kind, "'t'")
    run(
        url,
        "CREATE DOMAIN named AS regclass",
        "CREATE TYPE mood AS ENUM ('glad')",
        f"CREATE TABLE names (id int PRIMARY KEY, r {kind})",
        f"INSERT INTO names VALUES (1, {value})",
    )
    mirror = mirror_of(url, tmp_path / "plain", MirroredTables(tables=("public.*",)))
    assert "the column r of names shows names of catalog objects" in mirror.waiting()
    part = MirroredTables(tables=("public.names",), exclude_columns=("r",))
    mirror = mirror_of(url, tmp_path / "without", part)
    mirror.prepare()
    run(url, "ALTER TABLE t RENAME TO u", "ALTER TYPE mood RENAME TO temper")
    mirror.follow()
    assert mirror.wrong() == []
    part = MirroredTables.model_validate({"tables": ["public.names"], "types": {"r": "text"}})
    mirror = mirror_of(url, tmp_path / "plain", part)
    mirror.prepare()
    run(url, "ALTER TABLE u RENAME TO t", "ALTER TYPE temper RENAME TO mood")
    assert mirror.wrong() == ["names"], "the names are those of the time when the row was read"
