from prometheus_client import REGISTRY

from headrace.errors import HeadraceError, Kind
from headrace.state import Counters
from headrace.status import IndexPhase, Phase, StatusBoard
from headrace.status.board import Positions, UnitPhase, UnitStatus
from headrace.status.metrics import registry
from headrace.status.stages import Histogram, Stages
from support.console_states import SLOT


def test_numbers_are_those_of_the_board_at_the_time_of_asking() -> None:
    board = StatusBoard(["users", "orders"])
    numbers = registry(board)
    assert numbers.get_sample_value("headrace_changes_total") is None, "those of the run before are not read"
    assert numbers.get_sample_value("headrace_ready") == 0
    board.enter(Phase.LIVE)
    board.index("users", phase=IndexPhase.LIVE, ranges_total=3, ranges_done=3, documents=9)
    board.index("orders", phase=IndexPhase.LIVE)
    board.set_counts(Counters(changes=7, upserts=5, deletes=1, batches=2, rejected=1))
    board.set_positions(Positions(confirmed=100, applied=150, current=400))
    expected = {
        "headrace_changes_total": 7,
        "headrace_upserts_total": 5,
        "headrace_deletes_total": 1,
        "headrace_batches_total": 2,
        "headrace_rejected_documents_total": 1,
        "headrace_slot_unconfirmed_bytes": 300,
        "headrace_ready": 1,
    }
    assert {name: numbers.get_sample_value(name) for name in expected} == expected
    for name, value in (("backfilled", 1), ("ranges", 3), ("ranges_done", 3), ("backfilled_documents", 9)):
        assert numbers.get_sample_value(f"headrace_index_{name}", {"index": "users"}) == value
    assert numbers.get_sample_value("headrace_position_bytes", {"position": "applied"}) == 150


def test_an_index_that_is_stuck_is_told_apart_from_one_that_is_built() -> None:
    board = StatusBoard()
    phases = {"users": UnitPhase.LIVE, "orders": UnitPhase.WAITING, "items": UnitPhase.BACKFILLING}
    units = [UnitStatus("", index, phase) for index, phase in phases.items()]
    board.note(units=(*units, UnitStatus("copy", "users", UnitPhase.FAILED)))
    samples = {
        (index, sink): registry(board).get_sample_value(
            "headrace_index_waits", {"index": index, "sink": sink}
        )
        for index, sink in [*((index, "") for index in phases), ("users", "copy")]
    }
    assert samples == {("users", ""): 0, ("orders", ""): 1, ("items", ""): 0, ("users", "copy"): 1}


def test_exactly_one_phase_is_current() -> None:
    board = StatusBoard()
    board.enter(Phase.BACKFILLING)
    shown = {
        phase: registry(board).get_sample_value("headrace_state", {"state": phase.value}) for phase in Phase
    }
    assert [phase for phase, value in shown.items() if value == 1] == [Phase.BACKFILLING]
    assert set(shown.values()) == {0, 1}


def test_what_is_unknown_has_no_sample() -> None:
    numbers = registry(StatusBoard())
    for name in (
        "headrace_slot_unconfirmed_bytes",
        "headrace_lag_seconds",
        "headrace_last_error_timestamp_seconds",
    ):
        assert numbers.get_sample_value(name) is None
    assert numbers.get_sample_value("headrace_position_bytes", {"position": "confirmed"}) is None


def test_errors_are_counted_by_code() -> None:
    board = StatusBoard()
    for kind in (Kind.SINK_BUSY, Kind.SINK_BUSY, Kind.CONNECTION):
        board.record_error(HeadraceError(kind, "no"))
    numbers = registry(board)
    assert numbers.get_sample_value("headrace_errors_total", {"code": "HEADRACE_SINK_BUSY"}) == 2
    assert numbers.get_sample_value("headrace_errors_total", {"code": "HEADRACE_CONNECTION"}) == 1


def test_every_metric_is_ours_and_explained_and_the_default_registry_stays_untouched() -> None:
    families = list(registry(StatusBoard()).collect())
    assert all(family.name.startswith("headrace_") for family in families)
    assert all(family.documentation.endswith(".") for family in families)
    assert not any(family.name.startswith("headrace_") for family in REGISTRY.collect())


def test_the_advance_of_the_applied_position_has_its_time() -> None:
    now = [1_000.0]
    board = StatusBoard(wall=lambda: now[0])
    numbers, name = registry(board), "headrace_last_advance_timestamp_seconds"
    board.set_positions(Positions(confirmed=100, applied=150, current=400))
    assert numbers.get_sample_value(name) is None
    now[0] = 1_010.0
    board.set_positions(Positions(confirmed=150, applied=160, current=400))
    now[0] = 1_020.0
    board.set_positions(Positions(confirmed=160, applied=160, current=500))
    assert numbers.get_sample_value(name) == 1_010.0


def test_the_slot_is_shown_as_the_server_describes_it() -> None:
    board = StatusBoard()
    board.note(slot=SLOT)
    numbers = registry(board)
    assert numbers.get_sample_value("headrace_slot_retained_bytes") == SLOT.retained
    assert numbers.get_sample_value("headrace_slot_safe_wal_bytes") == SLOT.safe_wal_size


def test_latency_is_a_histogram_by_stage() -> None:
    board = StatusBoard()
    numbers = registry(board)
    assert numbers.get_sample_value("headrace_latency_seconds_count", {"stage": "total"}) == 0
    board.note(stages=Stages(latency={"write": Histogram().observed(0.02).observed(0.025).observed(400.0)}))
    upto = {
        bound: numbers.get_sample_value("headrace_latency_seconds_bucket", {"stage": "write", "le": bound})
        for bound in ("0.01", "0.025", "300.0", "+Inf")
    }
    assert upto == {"0.01": 0, "0.025": 2, "300.0": 2, "+Inf": 3}
    assert numbers.get_sample_value("headrace_latency_seconds_sum", {"stage": "write"}) == 400.045
