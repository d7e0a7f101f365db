"""`headrace status` says on a terminal what a run says at its public address."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from headrace.cli import main
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import StateKey
from headrace.state.lease import Lease
from headrace.status import StatusServer
from integration.cli.command_line import Deployment
from support.console_states import board_in


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["status", *words])
    return int(str(ended.value.code))


@pytest.mark.parametrize(
    ("state", "code", "lines"),
    [
        ("live", 0, ["live", "served"]),
        ("paused", 0, ["paused", "headrace resume"]),
        ("waiting", 1, ["live: not backfilled: users", "waits: users.schema.yml:12"]),
        ("backfilling", 1, ["backfilling", "412 of 1,130 ranges finished"]),
        ("standby", 1, ["standby: the run on host search-1"]),
        ("cluster-away", 1, ["degraded: ", "1.6 GB of log behind"]),
    ],
)
def test_a_run_tells_how_it_is(
    capsys: pytest.CaptureFixture[str], state: str, code: int, lines: list[str]
) -> None:
    with StatusServer(board_in(state), "127.0.0.1:0") as server:
        assert status(server.address) == code
        told = capsys.readouterr()
        assert all(line in " ".join((told.out + told.err).split()) for line in lines), told
        assert status(server.address, "--format", "json") == code
        found = json.loads(capsys.readouterr().out)
        assert [index["name"] for index in found["indexes"]] == ["users", "orders", "products"]


def test_where_no_run_answers_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for nothing in ("127.0.0.1:9", "no address"):
        assert status(nothing) == 1
        assert f"[HEADRACE_CONNECTION] no run answers at {nothing}" in " ".join(
            capsys.readouterr().err.split()
        )


def test_a_run_on_every_interface_is_asked_on_this_machine() -> None:
    with StatusServer(board_in("live"), "0.0.0.0:0") as server:
        assert server.address.startswith("0.0.0.0:")
        assert status(server.address) == 0


def test_a_run_that_is_asked_by_a_name_it_does_not_know_is_no_missing_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StatusServer(board_in("live"), "127.0.0.1:0") as server:
        port = server.address.rpartition(":")[2]
        assert status(f"127.1:{port}") == 1  # a name of the same address, to resolvers
    told = " ".join(capsys.readouterr().err.split())
    assert "does not accept the host name 127.1" in told
    assert "--public-hosts" in told


def test_the_run_is_found_by_what_it_notes_in_the_cluster(
    whole: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever address the file has: `headrace run --public-address` may have another."""
    config = ("--config", str(whole.folder / "headrace.toml"))
    key = StateKey(whole.name, "")
    assert status(*config) == 1
    assert f"no run is active for the slot '{whole.name}'" in " ".join(capsys.readouterr().err.split())
    with (
        StatusServer(board_in("paused"), "127.0.0.1:0") as server,
        closing(Client(Endpoint((whole.sink,)))) as client,
    ):
        with Lease(client, key, [], address=server.address):
            assert status(*config) == 0
            assert "paused" in capsys.readouterr().out
        with Lease(client, StateKey("elsewhere", ""), [], address=server.address):
            assert status(*config, "--slot", "elsewhere") == 0
            assert "paused" in capsys.readouterr().out
            monkeypatch.setenv("HEADRACE_SLOT", "elsewhere")
            assert status(*config) == 0
            monkeypatch.delenv("HEADRACE_SLOT")
            capsys.readouterr()
        with Lease(client, key, []):
            assert status(*config) == 1
            assert "serves no status" in " ".join(capsys.readouterr().err.split())


def test_where_the_cluster_is_away_the_address_of_the_file_is_asked(
    people: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    with StatusServer(board_in("cluster-away"), "127.0.0.1:0") as server:
        people.more = f'[server]\npublic_address = "{server.address}"'
        people.write()
        assert status("--config", str(people.folder / "headrace.toml")) == 1
        assert "degraded: " in capsys.readouterr().out
    assert status("--config", str(people.folder / "headrace.toml")) == 1
    assert "The cluster, which knows where the run is, does not answer either" in " ".join(
        capsys.readouterr().err.split()
    )
