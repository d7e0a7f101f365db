"""A board in each state that the console shows, with the hour before it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.slot import SlotFacts
from headrace.sinks.activity import ActivityReport
from headrace.state import Counters
from headrace.status import IndexPhase, Phase, StatusBoard
from headrace.status.board import Positions
from headrace.status.console.events import Happening
from headrace.status.console.explanation import Explanation
from headrace.status.console.history import History, LagPoint
from headrace.status.stages import Stages

MB, GB = 1024**2, 1024**3
CURRENT = 0x2C_1A00_0000
SLOT = SlotFacts(
    "shop_search",
    "pgoutput",
    "logical",
    "shop",
    two_phase=False,
    temporary=False,
    active_pid=4711,
    confirmed_flush=CURRENT - 240_000,
    restart=CURRENT - 21 * MB,
    wal_status="reserved",
    safe_wal_size=38 * GB,
    current=CURRENT,
    reader="pid 4711, headrace/shop_search of search, from 10.0.3.17",
)


UNREACHABLE = HeadraceError(
    Kind.SINK_UNREACHABLE,
    "http://10.0.3.40:9200 does not answer: connection refused",
    "Start the cluster, or correct [sink] url; nothing is lost meanwhile.",
)


def table(name: str, identity: str, *required: str, missing: tuple[str, ...] = ()) -> TableCoverage:
    place = TableName("public", name)
    remedy = (f"ALTER TABLE public.{name} REPLICA IDENTITY FULL;",) if missing else ()
    covered = tuple(column for column in required if column not in missing)
    return TableCoverage(place, place, required, covered, missing, identity, published=True, remedy=remedy)


TABLES = (
    table("users", "default", "id"),
    table("profiles", "profiles_user_id_key", "id", "user_id"),
    table("orders", "orders_replica_identity", "id", "user_id"),
    table("order_items", "full", "id", "order_id", "product_id"),
    table("products", "default", "id"),
)


def live(board: StatusBoard) -> None:
    """Everything is as it should be."""
    wall = time.time()
    held = {"users": 1_204_331, "orders": 8_911_702, "products": 48_230}
    for number, (name, documents) in enumerate(held.items()):
        board.index(
            name,
            phase=IndexPhase.LIVE,
            generation=f"{name}_{['d5fecb7a75', '0c41e9a2b7', '77ab03f1c9'][number]}_{number + 1}",
            documents=documents,
            held=documents,
            stored_bytes=documents * 812,
            served_since=wall - 86_400 * (3 - number) - 4_000,
            verified=[
                "2026-11-22 06:00: 1,204,298 documents, all right",
                "2026-11-22 06:04: 8,911,004 documents, all right",
                None,
            ][number],
        )
    board.mark_following()
    board.enter(Phase.LIVE)
    board.set_counts(Counters(changes=48_112_907, upserts=21_440_812, deletes=310_554, batches=902_114))
    board.set_positions(Positions(CURRENT - 240_000, CURRENT - 240_000, CURRENT))
    board.note(slot=SLOT)
    board.note(tables=TABLES)
    board.note(stages=busy_stages(1))
    report(board)


def report(board: StatusBoard, sink: str = "opensearch", error: HeadraceError | None = None) -> None:
    trouble: tuple[str, str, str] | tuple[()] = (
        () if error is None else (error.kind.name, error.cause, error.remedy)
    )
    activity = ActivityReport("run", sink, "w1", 4 * MB, 2, 3, 3600.0, trouble)
    board.sinks.take(activity)


def backfilling(board: StatusBoard) -> None:
    live(board)
    board.index(
        "orders",
        phase=IndexPhase.BACKFILLING,
        generation=None,
        served_since=None,
        held=None,
        stored_bytes=None,
        verified=None,
        building="orders_0c41e9a2b7_1",
        documents=3_220_400,
        ranges_done=412,
        ranges_total=1_130,
        documents_per_second=8_740.0,
        seconds_left=652.0,
    )
    board.enter(Phase.BACKFILLING)


def cluster_away(board: StatusBoard) -> None:
    live(board)
    behind = CURRENT - int(1.6 * GB)
    board.set_positions(Positions(behind, behind, behind))  # the newest position, twelve minutes ago
    board._clock, clock = (lambda: clock() + 720), board._clock
    board.set_positions(Positions(behind, behind, CURRENT))
    board.note(
        slot=replace(
            SLOT, confirmed_flush=behind, restart=behind, wal_status="extended", safe_wal_size=2 * GB
        )
    )
    board.record_error(UNREACHABLE)
    report(board, error=UNREACHABLE)


def slot_lost(board: StatusBoard) -> None:
    live(board)
    board.note(
        slot=replace(
            SLOT, restart=None, wal_status="lost", safe_wal_size=None, invalidation="wal_removed", reader=None
        )
    )
    board.ended(
        HeadraceError(
            Kind.SLOT_LOST,
            "the replication slot 'shop_search' is lost: its log is removed (max_slot_wal_keep_size)",
            "Run `headrace teardown`, then `headrace run`: searches use the present indexes until all are "
            "backfilled again.",
        )
    )


def quarantine(board: StatusBoard) -> None:
    live(board)
    board.index("users", quarantined=3)


def secondary_behind(board: StatusBoard) -> None:
    live(board)
    board.index(
        "users", sink="archive", phase=IndexPhase.LIVE, generation="users_d5fecb7a75_1", held=1_200_118
    )
    board.secondary("archive", deferred=4_213)
    report(board, "archive")


def paused(board: StatusBoard) -> None:
    live(board)
    board.pause("anna@ops")


def waiting(board: StatusBoard) -> None:
    """A column that one index reads was dropped; the others go on."""
    live(board)
    board.index(
        "users",
        phase=IndexPhase.BACKFILLING,
        error="users.schema.yml:12: the table public.users has no column nickname; take the field out",
    )


def standby(board: StatusBoard) -> None:
    board.enter(Phase.STANDBY)
    board.stand_by("host search-1, pid 4711, since 2026-11-22T06:00:00+00:00")


def hostile(board: StatusBoard) -> None:
    """Names that try to be markup."""
    attack = '<script>document.title="taken"</script><img src=x onerror="document.title=\'taken\'">'
    long = "<b>'\"&" + "x" * 500
    board.index(attack, phase=IndexPhase.LIVE, generation=long, error=f"{attack} {long}", quarantined=1)
    board.index(long, phase=IndexPhase.BACKFILLING, building=attack)
    board.index("\u202eright to left", phase=IndexPhase.LIVE)
    board.mark_following()
    board.enter(Phase.LIVE)
    place = TableName(attack, long)
    board.note(
        tables=[
            TableCoverage(place, place, (attack,), (), (long,), attack, published=False, remedy=(attack,))
        ]
    )
    board.note(slot=replace(SLOT, reader=f"pid 1, {attack}", wal_status=attack))
    board.index(attack, sink=attack, phase=IndexPhase.LIVE)
    board.secondary(attack, away=long)
    board.set_warnings([attack, long])
    report(board, long)
    board.record_error(HeadraceError(Kind.CONNECTION, f"{attack} {long}", attack))


STATES: dict[str, Callable[[StatusBoard], None]] = {
    "live": live,
    "backfilling": backfilling,
    "cluster-away": cluster_away,
    "slot-lost": slot_lost,
    "quarantine": quarantine,
    "secondary-behind": secondary_behind,
    "paused": paused,
    "waiting": waiting,
    "standby": standby,
}


def keep_reporting(board: StatusBoard, state: str) -> None:
    """Say again what the writers say: what lasts for a second is shown."""
    for activity in board.sinks.view():
        report(board, activity.name, UNREACHABLE if state == "cluster-away" else None)


def board_in(state: str) -> StatusBoard:
    secondary = ["archive"] if state == "secondary-behind" else []
    board = StatusBoard([] if state == "hostile" else ["users", "orders", "products"], secondary=secondary)
    {**STATES, "hostile": hostile}[state](board)
    return board


def fill_history(history: History, state: str) -> None:
    """Put an hour before now into the history."""
    now = time.time()
    away = state in {"cluster-away", "slot-lost"}
    for ago in range(3600, 0, -5):
        wave = 0.4 + 0.3 * math.sin(ago / 90) + (6 * math.exp(-(((ago - 1500) / 120) ** 2)))
        seconds = wave + (max(0, 720 - ago) if away else 0)
        position = CURRENT - ago * 1_400_000
        history.points.append(LagPoint(now - ago, seconds, int(seconds * 2_200_000), position))
    if away:
        history.moved_at = now - 720
    history.events.clear()
    history.events.extendleft(
        [
            Happening(now - 80_000, "the run began"),
            Happening(now - 79_988, "live: every index is backfilled, and the stream follows", "good"),
            Happening(now - 41_000, "products: products_77ab03f1c9_3 is being backfilled"),
            Happening(now - 40_930, "products: readers see products_77ab03f1c9_3", "good"),
            Happening(now - 9_000, "slot shop_search: wal_status is extended, 1.2 GB of log retained", "bad"),
            Happening(
                now - 8_400, "slot shop_search: wal_status is reserved, 310.0 MB of log retained", "good"
            ),
        ]
    )


def busy_stages(number: int) -> Stages:
    """What the stages have done after so many batches."""
    return Stages(
        number,
        captured=number * 62,
        resolved=number * 41,
        assembled=number * 41,
        written=number * 41,
        capture_seconds=number * 0.004,
        resolve_seconds=number * 0.011,
        assemble_seconds=number * 0.028,
        write_seconds=number * 0.019,
        tables={"public.orders": number * 41, "public.order_items": number * 20, "public.users": number},
    )


class FakeExplains:
    """Says of every document what is said of one that is soft-deleted."""

    def explain(self, index: str, id_: str) -> Explanation:
        return Explanation(
            f"{index} has no document {id_}: its row is soft-deleted (deleted_at is set)",
            (
                ("row in users", "is there"),
                ("left out by", "soft_delete: deleted_at"),
                ("document", "deleted at version 2C/19FFE0A8, which is applied"),
                ("deferred", "no"),
                ("in quarantine", "no"),
            ),
        )
