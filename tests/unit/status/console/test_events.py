from dataclasses import replace

from headrace.errors import HeadraceError, Kind
from headrace.status import IndexPhase, Phase, StatusBoard
from headrace.status.board import View
from headrace.status.console.events import happenings
from support.console_states import SLOT


def said(before: View, board: StatusBoard) -> list[str]:
    return [event.text for event in happenings(before, board.view(), 1000.0)]


def board() -> StatusBoard:
    return StatusBoard(["users"], secondary=["archive"])


def test_the_first_look_tells_when_the_run_began() -> None:
    view = board().view()
    [event] = happenings(None, view, 1000.0)
    assert (event.text, event.time) == ("the run began", view.started)


def test_where_nothing_changed_nothing_happened() -> None:
    one = board()
    assert said(one.view(), one) == []


def test_an_error_and_its_end_are_told() -> None:
    one = board()
    one.enter(Phase.LIVE)
    before = one.view()
    one.record_error(HeadraceError(Kind.CONNECTION, "the server is away", "Start it."))
    assert said(before, one) == ["[HEADRACE_CONNECTION] the server is away. Start it.", "degraded"]
    before = one.view()
    one.recovered()
    assert said(before, one) == ["works again; live"]


def test_a_generation_is_told_when_it_is_begun_and_when_readers_see_it() -> None:
    one = board()
    before = one.view()
    one.index("users", phase=IndexPhase.BACKFILLING, generation="users_1", building="users_1")
    assert said(before, one) == ["users: users_1 is being backfilled"]
    before = one.view()
    one.index("users", phase=IndexPhase.LIVE, building=None)
    assert said(before, one) == ["users: readers see users_1"]
    before = one.view()
    one.index("users", generation="users_2", quarantined=1, error="a mapping was refused")
    assert said(before, one) == [
        "users: readers see users_2",
        "users: a mapping was refused",
        "users: 1 document in quarantine, 0 before",
    ]


def test_the_slot_and_the_sinks_are_told() -> None:
    one = board()
    one.note(slot=SLOT)
    one.index("users", sink="archive", phase=IndexPhase.LIVE)
    before = one.view()
    one.note(slot=replace(SLOT, wal_status="extended"))
    one.secondary("archive", away="it hangs")
    assert said(before, one) == [
        "slot shop_search: wal_status is extended, 21.0 MB of log retained",
        "sink archive: away: it hangs",
    ]
    before = one.view()
    one.note(slot=replace(SLOT, wal_status="lost", invalidation="wal_removed"))
    assert said(before, one) == ["the slot shop_search is lost: its log is removed (max_slot_wal_keep_size)"]


def test_a_warning_is_told_once() -> None:
    one = board()
    before = one.view()
    one.set_warnings(["no limit of the log"])
    assert said(before, one) == ["no limit of the log"]
    before = one.view()
    one.set_warnings(["no limit of the log"])
    assert said(before, one) == []
