"""Do a mirror's pages say what becomes of each of its tables?"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.errors import HeadraceError, Kind
from headrace.status.mirror_board import MirrorBoard, MirrorServer, TableStatus
from headrace.status.phases import Phase
from support.followed_mirror import FollowedMirror, run
from support.slots import prepared_database

SLOT = "mirror_status"


@pytest.fixture
def url(database: str) -> Iterator[str]:
    setup = (
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY, n numeric(4,1))",
        "INSERT INTO b VALUES (1, 'NaN')",
    )
    with prepared_database(database, *setup) as prepared:
        yield prepared


def get(address: str, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{page}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_waiting_table_is_on_every_page_with_its_reason_and_the_others_live(
    url: str, tmp_path: Path
) -> None:
    part = MirroredTables(tables=("public.*",))
    config = MirrorConfig(location=str(tmp_path), slot=SLOT, publication=SLOT, tables=(part,))
    mirror, _, _ = FollowedMirror(url, config).prepare()
    with MirrorServer(mirror.board, "127.0.0.1:0") as server:
        status = json.loads(get(server.address, "/status")[1])
        metrics = get(server.address, "/metrics")[1]
        assert get(server.address, "/readyz") == (200, "ready\n")
    assert (status["phase"], status["slot"]) == ("live", SLOT)
    assert status["tables"]["a"]["phase"] == "live"
    assert status["tables"]["a"]["complete"]
    waiting = status["tables"]["b"]
    assert (waiting["phase"], waiting["complete"]) == ("waiting", None)
    assert "the lake's type for numeric(4,1) cannot hold a value of b.n (id = 1)" in waiting["reason"]
    assert "on_value" in waiting["remedy"]
    assert waiting["next_try"] > 0
    assert 'headrace_mirror_table{state="waiting",table="b"} 1.0' in metrics
    assert 'headrace_mirror_table{state="live",table="a"} 1.0' in metrics
    assert "headrace_ready 1.0" in metrics
    run(url, "DELETE FROM b")
    again, _, _ = FollowedMirror(url, config).prepare()
    assert {name: table.phase for name, table in again.board.view().tables.items()} == {
        "a": "live",
        "b": "live",
    }


def test_a_table_that_is_loaded_in_the_middle_of_a_batch_is_shown_as_loading(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Phase, list[str]]] = []
    show = MirrorBoard.show

    def showing(board: MirrorBoard, phase: Phase, tables: dict[str, TableStatus]) -> None:
        seen.append((phase, [name for name, table in tables.items() if table.phase == "loading"]))
        show(board, phase, tables)

    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.a",)))
    mirror.follow()
    monkeypatch.setattr(MirrorBoard, "show", showing)
    mirror.follow(before=lambda: run(url, "ALTER TABLE a ALTER id TYPE text", "INSERT INTO a VALUES ('x')"))
    assert seen == [(Phase.LIVE, []), (Phase.BACKFILLING, ["a"]), (Phase.BACKFILLING, []), (Phase.LIVE, [])]


def test_a_mirror_that_does_not_follow_is_not_ready_and_says_why() -> None:
    board = MirrorBoard(SLOT)
    with MirrorServer(board, "127.0.0.1:0") as server:
        assert get(server.address, "/readyz") == (503, "the mirror is starting\n")
        board.show(Phase.DEGRADED, error=HeadraceError(Kind.CONNECTION, "the server is away"))
        status, text = get(server.address, "/readyz")
        assert (status, "the server is away" in text) == (503, True)
        assert get(server.address, "/healthz") == (200, "ok\n")
