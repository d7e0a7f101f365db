import json
import threading

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.activity import ActivityReport, StageReport
from headrace.state import Counters
from headrace.status import IndexPhase, Phase, StatusBoard
from headrace.status.board import Positions


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def board(*indexes: str, clock: Clock | None = None) -> StatusBoard:
    return StatusBoard(indexes, clock=clock or Clock(), wall=Clock(1_700_000_000.25))


def ready(one: StatusBoard) -> bool:
    """Asked anew: mypy takes a property for a value that stays as it was found."""
    return one.ready


def test_a_new_run_is_starting_knows_its_indexes_and_is_not_ready() -> None:
    shown = board("users", "orders").snapshot()
    assert shown["phase"] == "starting"
    assert shown["ready"] is False
    assert shown["reason"] == "starting"
    assert [one["name"] for one in shown["indexes"]] == ["users", "orders"]
    assert {one["phase"] for one in shown["indexes"]} == {"pending"}
    assert shown["started"] == "2023-11-14T22:13:20.250Z"
    assert shown["positions"] == {"confirmed": None, "applied": None, "current": None}
    assert shown["lag"] == {"bytes": None, "seconds": None}
    assert shown["last_error"] is None


def test_ready_needs_every_index_and_the_stream() -> None:
    one = board("users", "orders")
    one.enter(Phase.BACKFILLING)
    one.index("users", phase=IndexPhase.LIVE)
    assert not ready(one)
    one.enter(Phase.LIVE)
    assert one.snapshot()["reason"] == "not backfilled: orders"
    one.index("orders", phase=IndexPhase.LIVE)
    assert one.ready
    assert one.snapshot()["reason"] is None


def test_a_secondary_sink_is_told_of_and_keeps_nobody_waiting() -> None:
    one = StatusBoard(["users"], secondary=["other"], clock=Clock(), wall=Clock())
    one.index("users", phase=IndexPhase.LIVE)
    one.enter(Phase.LIVE)
    assert one.ready
    assert one.snapshot()["sinks"]["other"]["phase"] == "backfilling"
    one.index("users", sink="other", phase=IndexPhase.LIVE, generation="o_users_1")
    assert one.snapshot()["sinks"]["other"]["phase"] == "live"
    one.secondary("other", deferred=7, away="it hangs")
    assert one.ready
    shown = one.snapshot()["sinks"]["other"]
    assert (shown["phase"], shown["deferred"], shown["away"]) == ("away", 7, "it hangs")
    assert [each["generation"] for each in shown["indexes"]] == ["o_users_1"]
    one.secondary("other", away=None)
    assert one.snapshot()["sinks"]["other"]["phase"] == "behind"
    one.index("orders", sink="other", phase=IndexPhase.LIVE, generation="o_orders_1")
    one.set_indexes(["orders"])
    assert [each["name"] for each in one.snapshot()["sinks"]["other"]["indexes"]] == ["orders"]


def test_progress_of_a_backfill_is_shown() -> None:
    one = board("users")
    one.index("users", phase=IndexPhase.BACKFILLING, generation="users_1", ranges_total=4)
    one.index("users", ranges_done=3, documents=29)
    assert one.snapshot()["indexes"] == [
        {
            "name": "users",
            "phase": "backfilling",
            "generation": "users_1",
            "ranges_done": 3,
            "ranges_total": 4,
            "documents": 29,
            "building": None,
            "documents_per_second": None,
            "seconds_left": None,
            "error": None,
            "quarantined": 0,
            "held": None,
            "stored_bytes": None,
            "served_since": None,
            "verified": None,
            "drift": None,
        }
    ]


def test_an_error_that_ends_the_run_is_its_last_state() -> None:
    one = board()
    one.enter(Phase.LIVE)
    one.ended(HeadraceError(Kind.SLOT_LOST, "the slot is lost", "Begin anew."))
    view = one.view()
    assert view.phase is Phase.STOPPED
    assert view.failure is not None
    assert (view.failure.cause, view.failure.remedy) == ("the slot is lost", "Begin anew.")


def test_a_run_that_was_stopped_on_request_has_no_failure_whatever_happened_before() -> None:
    one = board()
    one.enter(Phase.LIVE)
    one.record_error(HeadraceError(Kind.SINK_BUSY, "the cluster is overloaded"))
    failure = one.view().failure
    assert failure is not None
    assert failure.cause == "the cluster is overloaded"
    one.enter(Phase.STOPPED)
    assert one.view().failure is None


def test_an_error_that_waiting_cures_degrades_until_it_is_cured() -> None:
    one = board()
    one.enter(Phase.LIVE)
    one.record_error(HeadraceError(Kind.SINK_BUSY, "the cluster is overloaded"))
    assert one.phase is Phase.DEGRADED
    assert not ready(one)
    shown = one.snapshot()
    assert shown["reason"] == "degraded: [HEADRACE_SINK_BUSY] the cluster is overloaded"
    assert shown["last_error"] == {
        "code": "HEADRACE_SINK_BUSY",
        "text": "[HEADRACE_SINK_BUSY] the cluster is overloaded",
        "time": "2023-11-14T22:13:20.250Z",
    }
    one.recovered()
    assert one.ready
    assert one.snapshot()["counters"]["errors"] == 1


@pytest.mark.parametrize("before", [Phase.STARTING, Phase.STANDBY, Phase.BACKFILLING, Phase.LIVE])
def test_trouble_lasts_until_it_is_over_whatever_the_run_does_meanwhile(before: Phase) -> None:
    one = board()
    one.enter(before)
    for _ in range(2):
        one.record_error(HeadraceError(Kind.SINK_BUSY, "the cluster is overloaded"))
        assert one.phase is Phase.DEGRADED
    one.recovered()
    assert one.phase is before
    one.record_error(HeadraceError(Kind.SINK_BUSY, "the cluster is overloaded"))
    one.enter(Phase.LIVE)
    assert one.view().phase is Phase.DEGRADED
    one.recovered()
    assert one.view().phase is Phase.LIVE


def test_nothing_wakes_a_stopped_run() -> None:
    one = board()
    one.enter(Phase.STOPPED)
    one.enter(Phase.LIVE)
    one.record_error(HeadraceError(Kind.SINK_BUSY, "the cluster is overloaded"))
    one.recovered()
    assert one.phase is Phase.STOPPED


def test_an_error_that_nothing_cures_changes_no_phase_by_itself() -> None:
    one = board()
    one.enter(Phase.LIVE)
    one.record_error(HeadraceError(Kind.SLOT_LOST, "the slot is gone"))
    assert one.phase is Phase.LIVE
    one.enter(Phase.STOPPED)
    assert one.snapshot()["reason"] == "stopped"


def test_positions_are_shown_as_postgres_writes_them_and_give_the_lag() -> None:
    clock = Clock(10.0)
    one = board(clock=clock)
    one.set_positions(Positions(confirmed=0x16_00000010, applied=0x16_00000010, current=0x16_00000010))
    assert one.snapshot()["lag"] == {"bytes": 0, "seconds": 0.0}
    clock.now = 12.0
    one.set_positions(Positions(confirmed=0x16_00000010, applied=None, current=0x16_00000110))
    clock.now = 13.0
    shown = one.snapshot()
    assert shown["positions"]["confirmed"] == {"lsn": "16/10", "bytes": 0x16_00000010}
    assert shown["positions"]["applied"] is None
    assert shown["lag"] == {"bytes": 256, "seconds": 3.0}


def test_counts_never_shrink() -> None:
    one = board()
    one.set_counts(Counters(changes=5, upserts=4, batches=1))
    one.set_counts(Counters(changes=3, upserts=6, batches=2))
    one.set_counts(Counters(deletes=2, rejected=1))
    assert one.snapshot()["counters"] == {
        "changes": 5,
        "upserts": 6,
        "deletes": 2,
        "batches": 2,
        "rejected": 1,
        "errors": 0,
        "gaps": 0,
    }


def test_warnings_are_shown_until_they_are_replaced() -> None:
    one = board()
    one.set_warnings(["orders can go stale"])
    assert one.snapshot()["warnings"] == ["orders can go stale"]
    one.set_warnings([])
    assert one.snapshot()["warnings"] == []


def test_a_snapshot_is_json() -> None:
    one = board("users")
    one.record_error(HeadraceError(Kind.CONNECTION, "gone"))
    one.set_positions(Positions(1, 2, 3))
    assert json.loads(json.dumps(one.snapshot())) == one.snapshot()


def test_writers_on_many_threads_lose_no_error() -> None:
    one = board()

    def work() -> None:
        for _ in range(500):
            one.record_error(HeadraceError(Kind.CONNECTION, "gone"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.snapshot()["counters"]["errors"] == 2000


def test_a_served_index_is_ready_while_its_next_generation_is_built() -> None:
    one = board("users")
    one.enter(Phase.BACKFILLING)
    one.index("users", phase=IndexPhase.LIVE, generation="users_1", building="users_2")
    assert not one.ready, "nothing follows yet"
    one.mark_following()
    assert (one.phase, one.ready) == (Phase.BACKFILLING, True)
    one.index("users", phase=IndexPhase.BACKFILLING)
    assert one.snapshot()["reason"] == "not backfilled: users"


def test_a_gap_is_a_warning_until_everything_is_rebuilt() -> None:
    board = StatusBoard(["users"])
    board.set_warnings(["ignored"])
    board.record_gap("the slot is gone")
    board.count_rebuild("users", "table")
    assert board.view().rebuilds == {("users", "table"): 1}
    assert board.snapshot()["warnings"] == ["the slot is gone", "ignored"]
    board.set_warning("gap", None)
    assert (board.snapshot()["warnings"], board.view().gaps) == (["ignored"], 1)


def test_a_stream_without_a_sign_of_life_is_not_ready_and_any_sign_is_one() -> None:
    clock = Clock(1000.0)
    one = board("users", clock=clock)
    one.index("users", phase=IndexPhase.LIVE)
    one.enter(Phase.LIVE)
    beaten = clock.now
    one.stall.watch(lambda: clock.now - beaten)
    one.stall.note_first_batch()
    clock.now += 39
    assert ready(one)
    clock.now += 2
    reason = one.view().unready
    assert reason is not None
    assert reason.startswith("stalled: [HEADRACE_STALLED] the stream stands still")
    one.stall.note_work()
    assert ready(one), "the database is at work"
    clock.now += 46
    assert not ready(one)
    one.sinks.take_stage(StageReport("run", "primary", "host:1", "assemble"))
    assert ready(one), "a task has come to another stage"
    clock.now += 46
    assert not ready(one)
    writer = "host:1:w"
    one.sinks.take(ActivityReport("run", "primary", writer, 1, 1, 0, 60.0, ("SINK_BUSY", "full", "")))
    one.sinks.take(ActivityReport("run", "primary", writer, 1, 1, 0, 60.0))
    assert one.view().stalled is not None, "a request that is refused or not answered is no progress"
    one.sinks.take(ActivityReport("run", "primary", writer, 1, 1, 0, 60.0, accepted=1))
    assert ready(one), "a bulk was accepted"
    clock.now += 46
    assert not ready(one)
    beaten = clock.now
    assert ready(one), "the batch has ended"
    clock.now += 46
    one.stall.watch(None)
    assert ready(one), "no query is looked after"
