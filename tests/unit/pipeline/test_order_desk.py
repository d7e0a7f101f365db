"""A run reads its orders now and then, carries out what changes no index, and answers each order once."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.answers import Answers
from headrace.pipeline.order_desk import OrderDesk, Outcome
from headrace.pipeline.reloads import Reloads
from headrace.reporter import SilentReporter
from headrace.state.orders import Order, OrderKind, new_order
from headrace.status.board import StatusBoard
from headrace.tools.errands import do_errand
from support.memory_mailbox import MemoryMailbox


class Lines(SilentReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    done = warning = info


class Away(MemoryMailbox):
    """A mailbox that can be out of reach."""

    away = False

    def read(self) -> tuple[Order, ...]:
        self._reach()
        return super().read()

    def submit(self, order: Order) -> Order:
        self._reach()
        return super().submit(order)

    def _reach(self) -> None:
        if self.away:
            raise HeadraceError(Kind.SINK_UNREACHABLE, "the cluster is away")


class Ground:
    """A desk with a clock that stands, and errands that tests decide."""

    def __init__(self) -> None:
        self.now = 0.0
        self.mailbox = Away()
        self.said = Lines()
        self.board = StatusBoard(["users"], reporter=self.said)
        self.errands: list[str] = []
        self.outcome: Outcome | Exception = ("all right", {"right": True})
        self.may_end = threading.Event()
        self.may_end.set()
        self.desk = OrderDesk(self.mailbox, self.board, self.do_errand, clock=lambda: self.now)

    def do_errand(self, order: Order) -> Outcome:
        self.errands.append(order.id)
        while not self.may_end.wait(0.01):
            pass
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def order(self, kind: OrderKind, index: str | None = None, **options: Any) -> Order:
        return self.mailbox.submit(new_order(kind, index, options=options, by="ada", client="10.0.0.7"))

    def ended(self, order: Order) -> Order:
        """The order, once it has ended."""
        assert until(lambda: self.known(order).has_ended, 20)
        return self.known(order)

    def known(self, order: Order) -> Order:
        known = self.mailbox.get(order.id)
        assert known is not None
        return known


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    with made.desk:
        yield made
        made.may_end.set()


def test_the_mailbox_is_read_once_a_second_or_when_woken(ground: Ground) -> None:
    assert ground.desk.open_orders() == ()
    first = ground.order(OrderKind.REINDEX, "users")
    assert ground.desk.open_orders() == ()
    ground.now = 1.0
    assert ground.desk.open_orders() == (first,)
    second = ground.order(OrderKind.REINDEX, "products")
    ground.desk.wake()
    assert ground.desk.open_orders() == ground.desk.open_orders() == (first, second)
    own = ground.desk.submit(new_order(OrderKind.RELOAD, by="this program"))
    assert ground.desk.open_orders() == (first, second, own)
    assert ground.said.lines == [
        f"control: ada from 10.0.0.7: reindex of users, order {first.id}",
        f"control: ada from 10.0.0.7: reindex of products, order {second.id}",
        f"control: this program: reload, order {own.id}",
    ]


def test_orders_stay_known_while_the_cluster_is_away(ground: Ground) -> None:
    order = ground.order(OrderKind.REINDEX, "users")
    assert ground.desk.open_orders() == (order,)
    ground.mailbox.away, ground.now = True, 5.0
    assert ground.desk.open_orders() == (order,)


def later(mailbox: MemoryMailbox, **others: Any) -> Order:
    """Give an order as a later version may, beside those that are there."""
    order = new_order(OrderKind.REINDEX, "users", by="ada")
    body = json.loads(mailbox._text or '{"format": 1, "orders": []}')
    body["orders"].append({**order.to_json(), **others})
    mailbox._text = json.dumps(body)
    return order


@pytest.mark.parametrize("others", [{"kind": "shrink"}, {"without_downtime": False}])
def test_an_order_of_a_later_version_is_refused_and_the_others_are_carried_out(
    ground: Ground, others: dict[str, Any]
) -> None:
    unknown = later(ground.mailbox, **others)
    pause = ground.order(OrderKind.PAUSE)
    [read, also] = ground.desk.open_orders()
    assert (read.id, read.kind, also.kind) == (unknown.id, OrderKind.UNKNOWN, OrderKind.PAUSE)
    ground.desk.carry_out(pause)
    assert ground.board.paused is not None
    assert stored(ground.mailbox, unknown) == {**unknown.to_json(), **others}, "others leave it as it is"
    nothing: Any = None
    with pytest.raises(HeadraceError, match="another version") as refused:
        do_errand(read, nothing, nothing)
    ground.outcome = refused.value
    ground.desk.carry_out(read)
    assert ground.ended(read).state == "failed"
    assert stored(ground.mailbox, unknown).items() >= others.items(), "its own version still reads it"


def stored(mailbox: MemoryMailbox, order: Order) -> dict[str, Any]:
    orders: list[dict[str, Any]] = json.loads(mailbox._text or "")["orders"]
    return next(one for one in orders if one["id"] == order.id)


def test_a_mailbox_that_cannot_be_read_is_told_until_it_can(ground: Ground) -> None:
    before, ground.mailbox._text = ground.mailbox._text, '{"format": 2}'
    assert ground.desk.open_orders() == ()
    assert "stored in format 2" in ground.said.lines[0]
    assert any("stored in format 2" in line for line in ground.board.snapshot()["warnings"])
    ground.mailbox._text, ground.now = before, 5.0
    order = ground.order(OrderKind.PAUSE)
    assert ground.desk.open_orders() == (order,)
    assert not ground.board.snapshot()["warnings"]


def test_a_signal_orders_one_reload(ground: Ground) -> None:
    ground.desk.want_reload()
    ground.desk.want_reload()
    [reload] = ground.desk.open_orders()
    assert (reload.kind, reload.by) == (OrderKind.RELOAD, "SIGHUP")
    assert ground.desk.start(reload)
    ground.desk.want_reload()
    assert len(ground.desk.open_orders()) == 2


def test_a_signal_that_comes_while_the_cluster_is_away_is_not_lost(ground: Ground) -> None:
    ground.mailbox.away = True
    ground.desk.want_reload()
    ground.desk.open_orders()
    ground.mailbox.away = False
    assert len(ground.desk.open_orders()) == 1


def test_a_pause_and_a_resume_take_effect_at_once(ground: Ground) -> None:
    pause = ground.order(OrderKind.PAUSE)
    ground.desk.carry_out(pause)
    paused = ground.board.paused
    assert paused is not None
    assert paused.by == "ada"
    assert ground.known(pause).result["paused"]["by"] == "ada"
    resume = ground.order(OrderKind.RESUME)
    ground.desk.carry_out(resume)
    assert ground.board.paused is None
    assert ground.known(resume).state == "done"


def test_a_log_level_takes_effect_and_an_unknown_one_is_refused(ground: Ground) -> None:
    logger = logging.getLogger("headrace")
    before = logger.level
    try:
        ground.desk.carry_out(known := ground.order(OrderKind.LOG_LEVEL, level="debug"))
        assert (logger.level, ground.known(known).result) == (logging.DEBUG, {"level": "debug"})
        ground.desk.carry_out(unknown := ground.order(OrderKind.LOG_LEVEL, level="loud"))
        assert logger.level == logging.DEBUG
        assert "'loud' is no log level" in ground.known(unknown).text
        assert ground.known(unknown).state == "failed"
    finally:
        logger.setLevel(before)


def test_a_verification_runs_beside_and_once(ground: Ground) -> None:
    ground.may_end.clear()
    order = ground.order(OrderKind.VERIFY, "users")
    ground.desk.carry_out(order)
    ground.desk.carry_out(order)
    assert ground.known(order).state == "running"
    ground.may_end.set()
    ended = ground.ended(order)
    assert (ended.state, ended.text, ended.result) == ("done", "all right", {"right": True})
    assert ground.errands == [order.id]


@pytest.mark.parametrize(
    ("failure", "code", "cause"),
    [
        (HeadraceError(Kind.DATABASE, "no such table", "Look."), "HEADRACE_DATABASE", "no such table"),
        (ValueError("a row says 'secret'"), "HEADRACE_INTERNAL", "a bug: ValueError: a row says …"),
    ],
)
def test_a_failure_is_the_answer_and_a_bug_shows_no_values(
    failure: Exception, code: str, cause: str, ground: Ground
) -> None:
    ground.outcome = failure
    order = ground.order(OrderKind.QUARANTINE_RETRY, "users")
    ground.desk.carry_out(order)
    error = ground.ended(order).error
    assert error is not None
    assert (error.code, error.cause) == (code, cause)
    assert "secret" not in "".join(ground.said.lines)


def test_what_is_still_busy_at_the_end_is_answered(ground: Ground) -> None:
    ground.may_end.clear()
    order = ground.order(OrderKind.VERIFY, "users")
    ground.desk.carry_out(order)
    assert until(lambda: bool(ground.errands), 20)
    ground.desk.__exit__()
    ended = ground.known(order)
    assert (ended.state, ended.text) == ("failed", "the run ended before the order was done")


def test_a_run_that_begins_answers_what_was_meant_for_an_earlier_one(ground: Ground) -> None:
    stays = [
        ground.order(OrderKind.REINDEX, "users"),
        ground.order(OrderKind.ROLLBACK, "products"),
        ground.order(OrderKind.RELOAD),
        ground.order(OrderKind.VERIFY, "users"),
        ground.order(OrderKind.QUARANTINE_DROP, "users"),
    ]
    begun = ground.order(OrderKind.QUARANTINE_DROP, "products")
    ground.mailbox.start(begun.id, "an earlier run")
    left = [ground.order(kind) for kind in (OrderKind.PAUSE, OrderKind.LOG_LEVEL)]
    ours = ground.desk.submit(new_order(OrderKind.RESUME))
    ground.desk.begin()
    assert ground.desk.has_begun
    assert {order.id for order in ground.desk.open_orders()} == {order.id for order in (*stays, ours)}
    for order in left:
        assert ground.known(order).text == "it was meant for an earlier run"
    assert ground.known(begun).text == "the run that had begun with it has ended"


def test_what_is_answered_is_not_open_any_more(ground: Ground) -> None:
    done, failed = ground.order(OrderKind.REINDEX, "users"), ground.order(OrderKind.ROLLBACK, "products")
    assert len(ground.desk.open_orders()) == 2
    ground.desk.answer(done, "users_2 is served")
    ground.desk.answer(failed, error=HeadraceError(Kind.USAGE, "no generation is retained"))
    assert ground.desk.open_orders() == ()
    assert (ground.known(done).state, ground.known(done).text) == ("done", "users_2 is served")
    assert (ground.known(failed).state, ground.known(failed).text) == ("failed", "no generation is retained")


def test_what_came_of_a_reload_is_kept_until_its_order_is_answered(ground: Ground) -> None:
    def load() -> tuple[None, tuple[HeadraceError, ...]]:
        return None, (HeadraceError(Kind.SCHEMA, "a mistake"),)

    nothing: Any = None
    definitions: Any = SimpleNamespace(project=nothing)
    reloads = Reloads(load, definitions, nothing, nothing, nothing, ground.board, {})
    answers, order = Answers(ground.desk, reloads), ground.order(OrderKind.RELOAD)
    answers.read_files(order)
    assert [*reloads.refusals] == [order.id]
    answers.answer(order, "the files are refused", done=False)
    assert (reloads.refusals, reloads.results) == ({}, {})
    error = ground.known(order).error
    assert error is not None
    assert "a mistake" in error.cause
