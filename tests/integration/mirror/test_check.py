"""Does a check say what a start would, and leave everything as it is?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.postgres.connection import connect, execute
from headrace.reporter import SilentReporter
from support.followed_mirror import FollowedMirror, run
from support.servers import as_user
from support.slots import prepared_database

SLOT = "mirror_check"
TABLES = (
    "CREATE TABLE prices (id int PRIMARY KEY, v int)",
    "CREATE TABLE orders (id int PRIMARY KEY, v int)",
)


@pytest.fixture
def url(database: str) -> Iterator[str]:
    with prepared_database(database, *TABLES) as url:
        yield url


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """The URL of a role that may read, and follow the log."""
    run(url, "CREATE ROLE mirroring LOGIN REPLICATION PASSWORD 'pw'", "GRANT pg_read_all_data TO mirroring")
    yield as_user(url, "mirroring", "pw")
    run(url, "DROP OWNED BY mirroring", "DROP ROLE mirroring")


def mirror_of(
    url: str, folder: Path, *tables: str, exclude: tuple[str, ...] = (), kind: Format = "delta"
) -> MirroredLake:
    return MirroredLake(url, config_of(folder, *tables, exclude=exclude, kind=kind), SilentReporter())


def config_of(
    folder: Path, *tables: str, exclude: tuple[str, ...] = (), kind: Format = "delta"
) -> MirrorConfig:
    part = MirroredTables(tables=tables or ("public.*",), exclude=exclude)
    return MirrorConfig(location=str(folder), format=kind, slot=SLOT, publication=SLOT, tables=(part,))


def made(url: str) -> tuple[int, int]:
    """How many publications and slots there are."""
    with connect(url) as connection:
        [(publications, slots)] = execute(
            connection,
            "SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots"
            " WHERE database = current_database())",
        )
    return publications, slots


def refusal(action: Callable[[], object]) -> HeadraceError:
    with pytest.raises(HeadraceError) as refused:
        action()
    return refused.value


def test_a_role_that_may_not_publish_is_told_what_the_owner_runs(url: str, role: str, tmp_path: Path) -> None:
    mirror = mirror_of(role, tmp_path)
    error, started = refusal(mirror.plan), refusal(mirror.set_up)
    assert (error.kind, str(error)) == (Kind.PRIVILEGE, str(started))
    assert made(url) == (0, 0)
    sql = error.remedy.partition(" run: ")[2].partition(" Or GRANT")[0]
    assert 'ADD TABLE "public"."orders", "public"."prices"' in sql
    run(url, *(statement for statement in sql.split(";") if statement.strip() not in ("BEGIN", "COMMIT", "")))
    assert mirror_of(role, tmp_path).plan().publication is None
    mirror_of(role, tmp_path).set_up()


def test_a_table_of_another_owner_will_wait(url: str, role: str, tmp_path: Path) -> None:
    run(url, "ALTER TABLE prices OWNER TO mirroring")
    with connect(url) as connection:
        execute(connection, f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO mirroring')
    plan = mirror_of(role, tmp_path).plan()
    assert [(str(name), error.kind) for name, error in plan.waiting.items()] == [("orders", Kind.PRIVILEGE)]
    assert [str(table.table) for table in plan.tables] == ["prices"]
    assert made(url) == (0, 0)


def test_a_role_without_the_right_to_replicate_is_refused(url: str, role: str, tmp_path: Path) -> None:
    run(url, "ALTER ROLE mirroring NOREPLICATION")
    error = refusal(mirror_of(role, tmp_path).plan)
    assert error.kind is Kind.PRIVILEGE
    assert "Grant the right to replicate" in error.remedy


def test_a_server_without_a_logical_log_is_refused(
    make_server: Callable[..., EmbeddedPostgres], tmp_path: Path
) -> None:
    url = make_server(wal_level="replica").create_database("shop")
    run(url, *TABLES)
    assert refusal(mirror_of(url, tmp_path).plan).kind is Kind.WAL_LEVEL


def test_a_table_that_the_publication_of_others_lacks_is_named_by_check_and_verify(
    url: str, tmp_path: Path
) -> None:
    run(url, f"CREATE PUBLICATION {SLOT} FOR TABLE prices")
    assert refusal(mirror_of(url, tmp_path, "public.orders").plan).kind is Kind.PUBLICATION
    FollowedMirror(url, config_of(tmp_path)).prepare()
    plan = mirror_of(url, tmp_path).plan()
    assert [(str(name), error.kind) for name, error in plan.waiting.items()] == [("orders", Kind.PUBLICATION)]
    found = {table.table.name: table for table in mirror_of(url, tmp_path).comparer().compare()}
    assert found["prices"].is_right
    assert (found["orders"].waits_for, found["orders"].is_right) == ("the lake does not have it yet", False)
    run(url, f"ALTER PUBLICATION {SLOT} ADD TABLE orders")
    assert mirror_of(url, tmp_path).plan().waiting == {}


def test_a_table_that_left_the_publication_is_named_by_check_and_verify(url: str, tmp_path: Path) -> None:
    run(url, f"CREATE PUBLICATION {SLOT} FOR TABLE prices, orders")
    FollowedMirror(url, config_of(tmp_path)).prepare()
    run(url, f"ALTER PUBLICATION {SLOT} DROP TABLE orders")
    FollowedMirror(url, config_of(tmp_path)).prepare()
    assert [str(name) for name in mirror_of(url, tmp_path).plan().waiting] == ["orders"]
    [orders, prices] = mirror_of(url, tmp_path).comparer().compare()
    assert prices.is_right
    assert "does not publish orders" in str(orders.waits_for)


def test_a_name_that_no_table_has_is_refused(url: str, tmp_path: Path) -> None:
    mirror = mirror_of(url, tmp_path, "public.pricez", "public.orders")
    error = refusal(mirror.plan)
    assert "there is no table public.pricez" in error.cause
    assert error.remedy == "Did you mean 'public.prices'?"
    assert refusal(mirror.set_up).kind is Kind.BINDING


def test_a_named_table_that_is_dropped_is_left_out(url: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, "public.prices", "public.orders")
    FollowedMirror(url, config).prepare()
    run(url, "DROP TABLE orders")
    for _ in range(2):
        _, tables, _ = FollowedMirror(url, config).prepare()
        assert [str(table) for table in tables] == ["prices"]


def test_a_lake_of_another_format_is_refused(url: str, tmp_path: Path) -> None:
    formats: list[Format] = ["delta", "iceberg"]
    for kind, other in zip(formats, reversed(formats), strict=True):
        folder = tmp_path / kind
        FollowedMirror(url, config_of(folder, kind=kind)).prepare()
        error = refusal(partial(mirror_of, url, folder, kind=other))
        assert (error.kind, f"is a mirror of the format {kind!r}" in error.cause) == (Kind.CONFIG, True)
        run(url, f"SELECT pg_drop_replication_slot('{SLOT}')")


def test_a_new_location_of_a_slot_that_is_there_is_warned_of(url: str, tmp_path: Path) -> None:
    assert mirror_of(url, tmp_path / "first").plan().warnings == ()
    _, _, told = FollowedMirror(url, config_of(tmp_path / "first")).prepare()
    assert not [text for text in told.texts if "is new" in text]
    assert mirror_of(url, tmp_path / "first").plan().warnings == ()
    assert "name another slot" in str(mirror_of(url, tmp_path / "second").plan().warnings)
    _, _, told = FollowedMirror(url, config_of(tmp_path / "second")).prepare()
    assert [text for text in told.texts if "name another slot" in text]


def test_what_of_the_file_has_no_effect_is_told(url: str, tmp_path: Path) -> None:
    """A misspelt column of tables that the lake has, and parts without a table; once for each start."""
    FollowedMirror(url, config_of(tmp_path)).prepare()
    mistaken = MirroredTables(tables=("public.*",), on_value={"vv": "text"})
    parts = (mistaken, MirroredTables(tables=("public.orders",)), MirroredTables(tables=("sales.*",)))
    config = config_of(tmp_path).model_copy(update={"tables": parts})
    expected = (
        'tables = ["public.orders"]: a part above it has all of its tables',
        'tables = ["sales.*"]: no table matches it',
        (
            'types, on_value: no table of its [[mirror.tables]] has a column "vv". Write the column as it is '
            "called now (v?), or leave it out."
        ),
    )
    assert MirroredLake(url, config, SilentReporter()).plan().warnings == expected
    mirror, _, told = FollowedMirror(url, config).prepare()
    mirror.prepare()
    assert [text for text in told.texts if text in expected] == [*expected]
    fresh = config.model_copy(update={"location": str(tmp_path / "new")})
    assert refusal(MirroredLake(url, fresh, SilentReporter()).plan).kind is Kind.BINDING


def test_tables_that_exclude_takes_out_are_named(url: str, tmp_path: Path) -> None:
    plan = mirror_of(url, tmp_path, exclude=("public.o*",)).plan()
    assert {str(name): why for name, why in plan.left_out.items()} == {"orders": "`exclude` takes it out"}


def test_the_slot_of_a_mirror_is_the_deployments_own(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FollowedMirror(url, config_of(tmp_path / "lake")).prepare()
    file = tmp_path / "headrace.toml"
    file.write_text(
        f'[source]\ntype = "postgres"\nconnection_url = "{url}"\n'
        f'[mirror]\nlocation = "lake"\nslot = "{SLOT}"\n[[mirror.tables]]\ntables = ["public.*"]\n'
    )
    with pytest.raises(SystemExit):
        main(["slots", "--config", str(file), "--format", "json"])
    assert [slot["ours"] for slot in json.loads(capsys.readouterr().out)] == [True]
    with pytest.raises(SystemExit) as ended:
        main(["slots", "drop", SLOT, "--yes", "--config", str(file)])
    assert ended.value.code == 0
    assert "it is this deployment's: without it the lake's tables" in " ".join(
        capsys.readouterr().err.split()
    )
