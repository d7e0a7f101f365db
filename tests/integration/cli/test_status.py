"""`headrace status` says on a terminal what a run says at its public address."""

from __future__ import annotations

import json

import pytest

from headrace.cli import main
from headrace.status import StatusServer
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
        ("backfilling", 1, ["backfilling", "412 of 1130 ranges"]),
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


def test_a_run_that_is_asked_by_a_name_it_does_not_know_is_no_missing_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with StatusServer(board_in("live"), "127.0.0.1:0") as server:
        port = server.address.rpartition(":")[2]
        assert status(f"127.1:{port}") == 1  # a name of the same address, to resolvers
    told = " ".join(capsys.readouterr().err.split())
    assert "does not know the name 127.1" in told
    assert "--public-hosts" in told
