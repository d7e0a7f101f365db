"""A database that is not as it must be: one line with the remedy, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import free_port
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import advisory_lock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import create_slot, drop_slot
from integration.cli.command_line import PETS, SCHEMA, Deployment
from integration.cli.conftest import fill
from support.servers import short_lived_server


@contextlib.contextmanager
def role(url: str, name: str, *grants: str) -> Iterator[str]:
    """The URL of a new role that may log in and read."""
    password = "her-s3cret-word"
    with connect(url) as connection:
        execute(connection, f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        for grant in (f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}", *grants):
            execute(connection, grant)
        try:
            parts = urlsplit(url)
            yield f"postgresql://{name}:{password}@{parts.hostname}:{parts.port}{parts.path}"
        finally:
            execute(connection, f"DROP OWNED BY {name}")
            execute(connection, f"DROP ROLE {name}")


def test_a_server_that_is_not_there_is_named_with_its_port(people: Deployment) -> None:
    port = free_port()
    people.url = f"postgresql://me:s3cret-word@127.0.0.1:{port}/shop"
    people.write()
    text = people.type("run").refused(1, "CONNECTION")
    assert f"127.0.0.1:{port}/shop" in text
    assert "Check host and port" in text


def test_a_database_that_is_not_there_is_named(people: Deployment) -> None:
    people.url = people.url.rpartition("/")[0] + "/nowhere"
    people.write()
    assert "/nowhere" in people.type("setup").refused(2, "CONFIG")


def test_a_wrong_password_is_never_shown(people: Deployment) -> None:
    parts = urlsplit(people.url)
    people.url = f"postgresql://postgres:wr0ng-word@127.0.0.1:{parts.port}{parts.path}"
    people.write()
    for words in (["run"], ["init", people.url, "--table", "people", "--folder", "new"]):
        text = people.type(*words).refused(1, "AUTHENTICATION")
        assert f"127.0.0.1:{parts.port}" in text


@pytest.mark.long
def test_a_role_without_the_right_to_replicate_is_told_the_grant_of_each_service(whole: Deployment) -> None:
    admin = whole.url
    with role(
        admin, "reader_only", f'GRANT CREATE ON DATABASE "{urlsplit(admin).path[1:]}" TO reader_only'
    ) as url:
        whole.url = url
        whole.write()
        for words in (["run"], ["check"]):
            text = whole.type(*words).refused(1, "PRIVILEGE")
            assert re.search(
                r'ALTER ROLE "reader_only" REPLICATION.*rds_replication.*ALTER USER.*azure_pg_admin', text
            )
        assert whole.left_in_database(admin) == []
        assert whole.left_in_cluster() == []


def test_a_role_that_may_not_publish_is_told_what_needs_the_right(people: Deployment) -> None:
    admin = people.url
    with role(admin, "mere_reader") as url:
        people.url = url
        people.write()
        text = people.type("setup", "--yes").refused(1, "PRIVILEGE")
    assert "CREATE PUBLICATION" in text
    assert "GRANT CREATE ON DATABASE" in text
    assert people.left_in_database(admin) == []


def test_unknown_tables_and_columns_come_all_at_once_with_what_was_meant(people: Deployment) -> None:
    people.schema = SCHEMA.replace("text: name", "text: nane") + PETS.replace("table: pets", "table: petz")
    people.write()
    told = people.type("run")
    assert told.code == 2
    assert {kind for kind, _ in told.errors} == {"BINDING"}
    assert any(
        "people.schema.yml:6" in text and "nane" in text and "'name'" in text for _, text in told.errors
    )
    assert any("petz" in text for _, text in told.errors)
    assert people.left_in_database() == []


def test_a_table_without_a_primary_key_is_refused(people: Deployment) -> None:
    people.schema = "version: 1\ntable: notes\nprimary_key: text\nfields:\n  - text: text\n"
    people.write()
    assert "Add a primary key" in people.type("run").refused(2, "BINDING")
    assert people.left_in_database() == []
    assert "primary key" in people.type("init", people.url, "--table", "notes", "--folder", "new").refused(
        2, "USAGE"
    )


def test_a_weak_replica_identity_is_refused_with_the_sql_that_mends_it(people: Deployment) -> None:
    people.schema = SCHEMA + PETS
    people.write()
    text = people.type("run").refused(1, "REPLICA_IDENTITY")
    assert people.left_in_database() == []
    assert "`headrace setup`" in text
    sql = text.partition("run: ")[2]
    assert "REPLICA IDENTITY" in sql
    with connect(people.url) as connection:
        for statement in sql.split("; "):
            execute(connection, statement)
    told = people.type("check")
    assert [kind for kind, _ in told.errors] == ["SINK_UNREACHABLE"]
    assert "CREATE PUBLICATION" in told.out


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        "LANGUAGE sql IMMUTABLE AS 'SELECT folded($1) = $1'",
        "LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN folded($1) = $1; END'",
        "LANGUAGE plpgsql STABLE AS 'BEGIN RETURN EXISTS (SELECT FROM folds); END'",
    ],
)
@pytest.mark.parametrize("called", ["public.is_shown(name)", "name::public.shown IS NOT NULL"])
def test_a_function_whose_body_needs_a_search_path_is_named_with_what_gives_it_one(
    people: Deployment, body: str, called: str
) -> None:
    """EXPLAIN alone does not read the body of most functions."""
    with connect(people.url) as connection:
        execute(connection, "CREATE FUNCTION folded(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
        execute(connection, "CREATE TABLE folds ()")
        execute(connection, f"CREATE FUNCTION is_shown(text) RETURNS bool {body}")
        execute(connection, "CREATE DOMAIN shown AS text CHECK (is_shown(value))")
    people.schema = SCHEMA + f'filters: [{{ raw: "{called}" }}]\n'
    people.write()
    [text] = [text for kind, text in people.type("check").errors if kind == "BINDING"]
    assert "people.schema.yml" in text
    [sql] = re.findall(r"ALTER FUNCTION \S+ SET search_path = SCHEMA", text)
    assert "is_shown" in sql
    with connect(people.url) as connection:
        execute(connection, "SET search_path = public")
        execute(connection, sql.replace("SCHEMA", "public"))
    assert [kind for kind, _ in people.type("check").errors] == ["SINK_UNREACHABLE"]


def test_a_publication_that_is_others_to_manage_is_left_alone(people: Deployment) -> None:
    people.source = "manage_publication = false"
    people.write()
    text = people.type("run").refused(1, "PUBLICATION")
    assert people.left_in_database() == []
    with connect(people.url) as connection:
        execute(connection, text.partition("run: ")[2])
    assert [kind for kind, _ in people.type("check").errors] == ["SINK_UNREACHABLE"]
    people.schema = SCHEMA + PETS
    people.source += '\nreplica_identity = "ignore"'
    people.write()
    text = people.type("setup", "--yes").refused(1, "PUBLICATION")
    assert "ALTER PUBLICATION" in text
    with connect(people.url) as connection:
        execute(connection, text.partition("run: ")[2])
    assert people.type("setup", "--yes").errors == []


def test_a_slot_of_unknown_origin_is_not_read(whole: Deployment) -> None:
    """Flusso's hole 6: what is backfilled is not tied to the slot."""
    assert whole.type("setup", "--yes").code == 0
    with create_slot(whole.url, whole.name):
        pass
    try:
        for words in (["run"], ["check"]):
            assert "headrace teardown" in whole.type(*words).refused(1, "SLOT_UNKNOWN")
        assert whole.left_in_cluster() == []
    finally:
        assert whole.type("teardown", "--yes").code == 0
    assert whole.left_in_database() == []


def test_a_second_run_is_refused_and_told_who_holds_the_slot(whole: Deployment) -> None:
    with connect(whole.url) as connection, advisory_lock(connection, whole.name):
        for words in (["run"], ["teardown", "--yes"]):
            text = whole.type(*words).refused(1, "SLOT_IN_USE")
            assert f"pid {connection.info.backend_pid}" in text
    assert whole.left_in_database() == []


@pytest.fixture(scope="module")
def narrow() -> Iterator[EmbeddedPostgres]:
    """A server with room for one slot and one walsender, which tells who connects to what."""
    settings = {
        "max_replication_slots": "1",
        "max_wal_senders": "1",
        "log_connections": "on",
        "log_line_prefix": "to <%d> ",
    }
    with short_lived_server(settings=settings) as server:
        fill(server.create_database("narrow"))
        yield server


@pytest.fixture
def crowded(narrow: EmbeddedPostgres, tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "crowded", narrow.database_url("narrow"))
    deployment.write()
    return deployment


def test_no_free_slot_is_told_with_the_slots_that_are(crowded: Deployment) -> None:
    with create_slot(crowded.url, "somebody"):
        pass
    try:
        text = crowded.type("run").refused(1, "NO_FREE_SLOT")
    finally:
        with connect(crowded.url) as connection:
            drop_slot(connection, "somebody")
    assert re.search(r"max_replication_slots is 1.*somebody \(idle\).*pg_drop_replication_slot", text)
    assert crowded.left_in_database() == []


def test_no_free_walsender_is_told_with_the_limits(crowded: Deployment) -> None:
    with ReplicationConnection(crowded.url):
        text = crowded.type("run").refused(1, "NO_FREE_SLOT")
    assert "max_wal_senders is 1" in text
    assert crowded.left_in_database() == []


def test_only_the_named_database_is_connected_to(narrow: EmbeddedPostgres, crowded: Deployment) -> None:
    seen = len(narrow.log(10_000).splitlines())
    assert [kind for kind, _ in crowded.type("check").errors] == ["SINK_UNREACHABLE"]
    assert crowded.type("setup", "--yes").code == 0
    assert crowded.type("teardown", "--yes").code == 0
    assert crowded.type("init", crowded.url, "--table", "people", "--folder", "new").code == 0
    lines = narrow.log(10_000).splitlines()[seen:]
    databases = [match[1] for line in lines if (match := re.match(r"to <(.*?)> .*authorized", line))]
    assert len(databases) > 4
    assert set(databases) == {"narrow"}


def test_a_log_without_changes_is_told_with_the_setting_of_each_service(tmp_path: Path) -> None:
    with short_lived_server(settings={"wal_level": "replica"}) as server:
        deployment = Deployment(tmp_path / "replica", server.create_database("shop"))
        fill(deployment.url)
        deployment.write()
        text = deployment.type("run").refused(1, "WAL_LEVEL")
        assert re.search("ALTER SYSTEM SET wal_level = logical.*restart.*rds.*cloudsql.*Azure", text)
        found = json.loads(deployment.type("check", "--format", "json").out)
        codes = [one["code"] for one in found["findings"] if one["level"] == "error"]
        assert codes == ["HEADRACE_WAL_LEVEL", "HEADRACE_SINK_UNREACHABLE"]
        assert deployment.left_in_database() == []
