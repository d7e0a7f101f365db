from dataclasses import replace

import pytest

from headrace.status import StatusBoard
from headrace.status.board import Positions
from headrace.status.console.history import History, LagPoint
from headrace.status.console.page import Figure, Page, make_page
from headrace.status.stall import NOT_DIAGNOSED
from support.console_states import GB, MB, SLOT, board_in

NOW = 1_800_000_000.0


def page(board: StatusBoard, *, log_rate: int = 0, confirmed_rate: int = 0, lag: int = 0) -> Page:
    """The page after half a minute in which log and confirmed position grew by so much a second."""
    history = History()
    for second in range(31):
        current = 10 * GB + second * log_rate
        behind = lag + (30 - second) * (confirmed_rate - log_rate)
        board.set_positions(Positions(current - behind, None, current))
        history.observe(board.view(), NOW - 30 + second)
    return make_page(board.view(), history, NOW)


def figure(figures: tuple[Figure, ...], name: str) -> Figure:
    [found] = [figure for figure in figures if figure.name == name]
    return found


def test_after_an_outage_the_page_tells_when_it_will_be_caught_up() -> None:
    shown = page(board_in("live"), log_rate=MB, confirmed_rate=11 * MB, lag=600 * MB)
    assert figure(shown.lag, "backlog").value == "1 min 0 s"
    assert figure(shown.lag, "advancing").value == "yes"


def test_a_lag_that_grows_is_never_caught_up() -> None:
    shown = page(board_in("live"), log_rate=3 * MB, confirmed_rate=MB, lag=600 * MB)
    assert figure(shown.lag, "backlog").value == "grows"


@pytest.mark.parametrize(("state", "tone"), [("live", "bad"), ("cluster-away", "bad"), ("paused", "plain")])
def test_nothing_of_a_backlog_is_good_while_the_stream_stands_still(state: str, tone: str) -> None:
    """However short it is: what waits in the log is not read."""
    view = board_in(state).view()
    if state == "live":
        view = replace(view, stalled=NOT_DIAGNOSED)
    view = replace(view, lag_bytes=200)
    backlog = figure(make_page(view, History(), NOW).lag, "backlog")
    assert (backlog.value, backlog.tone) == ("waits", tone)


def test_a_stream_that_keeps_up_has_no_backlog() -> None:
    backlog = figure(page(board_in("live")).lag, "backlog")
    assert (backlog.value, backlog.tone) == ("no backlog", "good")


def test_a_position_that_does_not_move_while_the_log_grows_is_not_advancing() -> None:
    board = board_in("cluster-away")
    history = History()
    for second in range(60):
        board.set_positions(Positions(GB, None, GB + second * MB))
        history.observe(board.view(), NOW - 60 + second)
    history.moved_at = NOW - 300
    advancing = figure(make_page(board.view(), history, NOW).lag, "advancing")
    assert (advancing.value, advancing.tone) == ("no", "bad")
    assert "not moved for 5 min" in advancing.note


def test_room_is_what_is_safe_at_the_present_rate() -> None:
    board = board_in("live")
    board.note(slot=replace(SLOT, safe_wal_size=36_000 * MB))
    shown = page(board, log_rate=MB, confirmed_rate=MB)
    assert figure(shown.slot, "room").value == "10 h 0 min"
    assert shown.notices == ()
    board.note(slot=replace(SLOT, safe_wal_size=600 * MB))
    shown = page(board, log_rate=MB, confirmed_rate=MB)
    assert figure(shown.slot, "room").tone == "bad"
    assert "lost in 10 min 0 s" in shown.notices[0].text
    board.note(slot=replace(SLOT, safe_wal_size=None))
    assert figure(page(board, log_rate=MB).slot, "room").value == "no limit"


def test_a_slot_about_to_be_lost_is_the_first_notice() -> None:
    board = board_in("quarantine")
    board.note(slot=replace(SLOT, wal_status="unreserved"))
    notices = page(board).notices
    assert "next checkpoint" in notices[0].text
    assert "max_slot_wal_keep_size" in notices[0].remedy
    assert "3 documents in quarantine" in notices[1].text


@pytest.mark.parametrize(
    ("state", "word", "why", "remedy"),
    [
        ("live", "live", "every index is backfilled", "nothing"),
        ("backfilling", "backfilling", "1 of 3 indexes is being filled: orders, about 10 min", "nothing"),
        ("cluster-away", "degraded", "does not answer", "Start the cluster"),
        ("slot-lost", "stopped", "is lost", "headrace teardown"),
        ("paused", "paused", "anna@ops has paused", "headrace resume"),
        ("waiting", "live", "except for 1 of 3 indexes: users", "the others continue"),
        ("standby", "standby", "search-1, pid 4711", "takes over"),
    ],
)
def test_the_headline_is_the_state_its_reason_and_what_to_do(
    state: str, word: str, why: str, remedy: str
) -> None:
    headline = page(board_in(state)).headline
    assert headline.word == word
    assert why in headline.why
    assert remedy in headline.remedy


def test_a_stall_is_a_state_with_its_own_advice() -> None:
    board = board_in("live")
    board.stall.watch(lambda: 100.0)
    board.stall.note_first_batch()
    board.stall.limit = -1.0
    headline = page(board).headline
    assert headline.word == "stalled"
    assert headline.code == "HEADRACE_STALLED"
    assert headline.why.startswith("the stream stands still")
    assert "pg_stat_activity" in headline.remedy


def test_tables_that_lack_something_come_first_with_the_statement_that_mends_it() -> None:
    board = board_in("live")
    whole = board.view().tables
    board.note(
        tables=[*whole, replace(whole[0], missing=("id",), remedy=("ALTER TABLE x;",), published=False)]
    )
    first = page(board).tables[0]
    assert (first.remedy, first.is_right) == (("ALTER TABLE x;",), False)
    assert (first.coverage.missing, first.coverage.published) == (("id",), False)


def test_many_rows_are_cut_off_and_counted() -> None:
    board = StatusBoard([f"index{number}" for number in range(250)])
    shown = page(board)
    assert (len(shown.indexes), shown.more_indexes) == (200, 50)


def test_a_new_run_is_shown_too() -> None:
    board = StatusBoard(["users"])
    history = History()
    history.observe(board.view(), NOW)
    shown = make_page(board.view(), history, NOW)
    assert shown.headline.word == "starting"
    assert shown.slot == ()
    assert figure(shown.lag, "advancing").value == "\N{EN DASH}"


def test_an_unknown_lag_is_a_gap_in_the_curve() -> None:
    history = History()
    history.observe(StatusBoard(["users"]).view(), NOW)
    assert history.points[0] == LagPoint(NOW, None, None, None)
