"""`headrace slots`, `headrace lag` and the coverage that `headrace check` reports, as a user types them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import SlotLock, advisory_lock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import create_slot, drop_slot, list_slots
from integration.cli.command_line import PETS, SCHEMA, Deployment, environment
from integration.cli.stock import TABLES, Stock
from support.servers import short_lived_server

_numbers = itertools.count(1)


@pytest.fixture
def followed(people: Deployment) -> Iterator[Deployment]:
    """A deployment with a slot of its own, a stranger's beside it, and some log behind both."""
    stranger = f"stranger_{next(_numbers)}"
    with connect(people.url) as connection:
        execute(connection, f'CREATE PUBLICATION "{people.name}"')
        create_slot(people.url, people.name).close()
        execute(connection, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", (stranger,))
        execute(connection, "INSERT INTO people SELECT generate_series(1, 1000), 'x'")
        yield people
        for facts in list_slots(connection):
            drop_slot(connection, facts.name, timeout=60)


def stranger_of(deployment: Deployment) -> str:
    found = json.loads(deployment.type("slots", "--format", "json").out)
    [name] = [one["slot"] for one in found if not one["ours"]]
    return str(name)


def test_headrace_alone_says_what_comes_next(people: Deployment) -> None:
    """By the file and the slot: no slot is set up, one without a reader is run, else it is looked at."""
    assert "which has no slot yet. Next:\n  headrace check" in people.type().out
    with connect(people.url) as connection:
        execute(connection, f'CREATE PUBLICATION "{people.name}"')
        create_slot(people.url, people.name).close()
        assert f"whose slot {people.name} nobody reads. Next:\n  headrace run" in people.type().out
        with ReplicationConnection(people.url, "a run") as stream:
            stream.start(people.name, 0, [people.name])
            assert "that runs. Next:\n  headrace status" in people.type().out
        assert "which has no slot yet" in people.type(HEADRACE_SLOT="elsewhere").out, "as a run takes it"
        drop_slot(connection, people.name, timeout=60)
    nowhere = people.type(DATABASE_URL="", HEADRACE_CONFIG="elsewhere.toml")
    assert "There is no elsewhere.toml in this folder" in nowhere.out


def test_slots_are_listed_with_their_readers_and_what_they_keep(followed: Deployment) -> None:
    stranger = stranger_of(followed)
    with ReplicationConnection(followed.url, "someone else") as stream:
        stream.start(followed.name, 0, [followed.name])
        pid, told = stream.pid, followed.type("slots")
        own = json.loads(followed.type("slots", "--format", "json").out)[0]
    assert told.code == 0
    lines = told.out.splitlines()
    assert len(lines) == 3, "a head and one line for each slot, also on a pipe"
    reader = rf"pid {pid}, someone else of postgres, from 127\.0\.0\.1"
    assert re.search(rf"^{followed.name} +yes +pgoutput +{reader} .* kB .*reserved", lines[1])
    assert re.search(rf"^{stranger} +test_decoding +nobody .*no limit", lines[2])
    assert (own["slot"], own["ours"], own["lost"]) == (followed.name, True, None)
    assert own["bytes"] > 0
    assert own["retained_bytes"] >= own["bytes"]


def test_the_lag_is_told_in_bytes_and_seconds(followed: Deployment) -> None:
    told = followed.type("lag")
    assert told.code == 0
    assert re.search(rf"^{followed.name}: [\d.]+ kB behind.*keeps [\d.]+ kB.*nobody reads it", told.out)
    found = json.loads(followed.type("lag", "--format", "json").out)
    assert found["bytes"] > 0
    with connect(followed.url) as connection:
        if connection.info.server_version >= 170000:
            assert 0 < found["seconds"] < 100
        execute(
            connection, "SELECT pg_replication_slot_advance($1, pg_current_wal_flush_lsn())", (followed.name,)
        )
    found = json.loads(followed.type("lag", HEADRACE_FORMAT="json").out)
    assert found["bytes"] >= 0


def test_without_a_slot_there_is_no_lag(people: Deployment) -> None:
    told = people.type("lag", "--format", "json")
    assert people.name in json.loads(told.err)["error"]["cause"]
    found = json.loads(told.out)
    assert (found["slot"], found["bytes"], found["seconds"]) == (people.name, None, None)


def test_the_password_command_of_the_file_is_run(people: Deployment) -> None:
    people.source += '\npassword_command = ["./no-such-program"]'
    people.write()
    for words in (("lag",), ("slots",)):
        assert "no-such-program" in people.type(*words).err, words


def test_the_slot_of_a_file_that_describes_a_mirror_alone(followed: Deployment) -> None:
    stranger = stranger_of(followed)
    (followed.folder / "headrace.toml").write_text(
        f'[source]\ntype = "postgres"\nconnection_url = {json.dumps(followed.url)}\n'
        f'[mirror]\nlocation = "lake"\nslot = "{stranger}"\n[[mirror.tables]]\ntables = ["public.people"]\n'
    )
    assert followed.type("lag").out.startswith(f"{stranger}: ")
    found = json.loads(followed.type("slots", "--format", "json").out)
    assert [slot["slot"] for slot in found if slot["ours"]] == [stranger]


def test_slots_of_a_database_without_a_deployment_file(followed: Deployment) -> None:
    stranger = stranger_of(followed)
    (followed.folder / "headrace.toml").unlink()
    assert followed.type("slots").refused(2, "CONFIG")
    for words, variables in (((), {"DATABASE_URL": followed.url}), (("--database", followed.url), {})):
        found = json.loads(followed.type("slots", "--format", "json", *words, **variables).out)
        assert {one["slot"]: one["ours"] for one in found} == {followed.name: False, stranger: False}
    told = followed.type("slots", "drop", stranger, "--yes", "--database", followed.url)
    assert told.code == 0
    assert "this deployment's" not in told.err
    assert followed.type("lag", DATABASE_URL=followed.url).refused(2, "CONFIG")


def test_a_slot_is_dropped_after_a_question_and_only_by_its_name(followed: Deployment) -> None:
    stranger = stranger_of(followed)
    assert followed.type("slots", "drop").refused(2, "USAGE")
    assert stranger in followed.type("slots", "drop", "strangr", "--yes").refused(1, "SLOT_UNKNOWN")
    told = followed.type("slots", "drop", stranger, answer="no\n")
    assert told.code == 1
    assert "not this deployment's" in told.err
    assert stranger_of(followed) == stranger
    assert followed.type("slots", "drop", stranger, HEADRACE_YES="1").code == 0
    told = followed.type("slots", "drop", followed.name, "--yes")
    assert told.code == 0
    assert "backfilled again" in told.err
    assert followed.left_in_database() == [f"publication {followed.name}"]


def test_a_slot_that_is_read_is_not_dropped_and_its_reader_is_named(followed: Deployment) -> None:
    with ReplicationConnection(followed.url, "someone else") as stream:
        stream.start(followed.name, 0, [followed.name])
        text = followed.type("slots", "drop", followed.name, "--yes").refused(1, "SLOT_IN_USE")
        assert f"pid {stream.pid}, someone else of postgres, from 127.0.0.1" in text
    with connect(followed.url) as connection, advisory_lock(connection, followed.name):
        text = followed.type("slots", "drop", followed.name, "--yes").refused(1, "SLOT_IN_USE")
        assert f"pid {connection.info.backend_pid}" in text


def test_check_reports_what_each_table_must_carry_carries_and_lacks(followed: Deployment) -> None:
    followed.schema = SCHEMA + PETS
    followed.write()
    with connect(followed.url) as connection:
        found = json.loads(followed.type("check", "--format", "json").out)
        pets = next(one for one in found["coverage"] if one["table"] == "pets")
        assert (pets["required"], pets["covered"]) == (["id", "person_id"], ["id"])
        assert (pets["missing"], pets["identity"], pets["published"]) == (["person_id"], "default", False)
        assert (pets["manageable"], pets["complete"]) == (True, False)
        for one in found["coverage"]:
            for statement in one["remedy"][:-2]:
                execute(connection, statement)
            with connection.transaction():
                for statement in one["remedy"][-2:]:
                    execute(connection, statement)
    assert any("max_slot_wal_keep_size is -1" in one["text"] for one in found["findings"])
    with ReplicationConnection(followed.url, "someone else") as stream:
        stream.start(followed.name, 0, [followed.name])
        told = followed.type("check")
    assert re.search(r"^pets +id, person_id +complete$", told.out, re.MULTILINE)
    assert "someone else of postgres, from 127.0.0.1" in told.err
    assert [kind for kind, _ in told.errors] == ["SINK_UNREACHABLE"]


def test_a_failover_slot_is_asked_for_in_the_file(people: Deployment, tmp_path: Path) -> None:
    people.source += "\nfailover = 1"
    people.write()
    assert "failover" in people.type("check", "--offline").refused(2, "CONFIG")


def test_a_program_that_asks_for_json_gets_errors_as_json(people: Deployment) -> None:
    """In one line on the standard error output; they were lines for people."""
    told = people.type("lag", "--format", "json")
    error = json.loads(told.err)["error"]
    assert (told.code, error["code"], error["exit_code"]) == (1, "HEADRACE_SLOT_UNKNOWN", 1)
    assert error["cause"]
    assert error["waits"] is False
    assert people.type("lag").refused(1, "SLOT_UNKNOWN")


@pytest.mark.long
def test_check_beside_a_run_says_that_one_is_on(stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--config", str(stock.config)])
        told = capsys.readouterr().err
        assert ended.value.code == 0, told
        return told

    assert "ready to run" in typed("check")
    with SlotLock(stock.url, stock.name), ReplicationConnection(stock.url, "its reader") as stream:
        stream.start(stock.name, 0, [stock.name])
        told, found = typed("check"), capture_check(stock)
    assert "ready to run" not in told
    assert "SLOT_IN_USE" not in told, "its reader is the run's own"
    assert re.search(rf"a run is active already \(pid \d+, headrace lock {stock.name}", told)
    assert f"headrace lock {stock.name}" in found["run"]


@pytest.mark.long
def test_a_slot_that_is_lost_is_an_error_only_where_a_run_does_not_rebuild_by_itself(stock: Stock) -> None:
    stock.drop()
    told = capture_check(stock, HEADRACE_ON_GAP="stop")
    [found] = [one for one in told["findings"] if one["code"] == "HEADRACE_SLOT_LOST"]
    assert (found["level"], told["ok"]) == ("error", False)
    assert "headrace teardown" in found["remedy"]
    told = capture_check(stock)
    [found] = [one for one in told["findings"] if one["code"] == "HEADRACE_SLOT_LOST"]
    assert (found["level"], told["ok"]) == ("warning", True)
    assert "rebuilds everything" in found["remedy"]
    assert "teardown" not in found["remedy"]
    with create_slot(stock.url, stock.name):
        pass


@pytest.mark.long
def test_of_a_slot_whose_log_is_removed_check_says_what_a_deployment_does(
    opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    small = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with short_lived_server(settings=small) as server:
        with connect(server.url) as connection:
            for statement in TABLES:
                execute(connection, statement)
        stock = Stock(tmp_path, server.url, opensearch.url)
        stock.seed()
        with connect(server.url) as connection:
            for statement in (f'ALTER PUBLICATION "{stock.name}" DROP TABLE stock', *_MUCH_LOG):
                execute(connection, statement)
        told = capture_check(stock, HEADRACE_ON_GAP="stop")
        [found] = [one for one in told["findings"] if one["code"] == "HEADRACE_SLOT_LOST"]
        assert "is lost" in found["text"]
        assert "headrace teardown" in found["remedy"]
        assert "on_gap" in found["remedy"]
        assert "Without a deployment" not in found["remedy"]


_MUCH_LOG = (
    *("SELECT pg_logical_emit_message(false, 'x', repeat('y', 1000000)) FROM generate_series(1, 20)",) * 3,
    "SELECT pg_switch_wal()",
    "CHECKPOINT",
)


def capture_check(stock: Stock, **variables: str) -> dict[str, Any]:
    """What `headrace check` finds."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "check", "--config", str(stock.config), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment(variables),
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
