"""What is worth a line while a run goes on?"""

from __future__ import annotations

from typing import Any

from headrace.cli.narration import Narration
from headrace.errors import HeadraceError, Kind
from headrace.status.board import StatusBoard
from headrace.status.phases import Phase

AWAY = HeadraceError(Kind.SINK_UNREACHABLE, "OpenSearch at a:9200 does not answer")


def said(narration: Narration, board: StatusBoard, now: float) -> list[tuple[str, str]]:
    return [(line.kind, line.text) for line in narration.lines(board.view(), now)]


def live(**about: Any) -> StatusBoard:
    board = StatusBoard(["users"])
    board.enter(Phase.LIVE)
    board.mark_following()
    board.index("users", **about)
    return board


def test_an_outage_has_a_line_at_its_beginning_and_one_at_its_end() -> None:
    board, narration = live(), Narration(progress=True)
    assert said(narration, board, 0) == []
    board.record_error(AWAY)
    [(kind, text)] = said(narration, board, 10)
    assert (kind, "does not answer" in text) == ("trouble", True)
    assert said(narration, board, 60) == [], "it is the same one"
    board.record_error(HeadraceError(Kind.CONNECTION, "no connection to the database"))
    assert [kind for kind, _ in said(narration, board, 70)] == ["trouble"]
    board.recovered()
    assert said(narration, board, 133) == [("recovery", "the run works again, after 2 min 3 s")]
    assert said(narration, board, 140) == []


def test_what_is_filled_has_a_line_every_ten_seconds() -> None:
    board = live(building="users_ab_2", ranges_total=8, ranges_done=3, documents=12000)
    narration = Narration(progress=True)
    assert said(narration, board, 0) == []
    assert said(narration, board, 9) == []
    board.index("users", documents_per_second=1240.0, seconds_left=12.0)
    assert said(narration, board, 10) == [
        ("progress", "users: 12,000 documents, 3 of 8 ranges finished, 1,240/s, about 12.0 s left")
    ]
    assert said(narration, board, 19) == []
    assert said(narration, board, 20) == said(narration, board, 600) == [], "it does not get on"
    board.index("users", documents=12001)
    assert [kind for kind, _ in said(narration, board, 601)] == ["progress"]
    board.index("users", building=None, documents=12002)
    assert said(narration, board, 630) == []
    assert list(Narration(progress=False).lines(board.view(), 100)) == []
