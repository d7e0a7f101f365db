"""Does a run that stands by take over from one that dies or vanishes, with nothing lost and nothing stale?"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop
from headrace.embedded.processes import until
from support.driven_run import DrivenRun

pytestmark = pytest.mark.long

_READY_WITHIN = 180.0


@contextmanager
def _writing(shop: Shop) -> Iterator[None]:
    """Write small transactions to several tables, from another thread."""
    ending = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if ending.wait(0.02):
                return
            shop.run(
                f"UPDATE users SET name = 'w{number}' WHERE id = {number % 50 + 1}",
                f"UPDATE order_items SET quantity = quantity % 9 + 1 WHERE id % 50 = {number % 50}",
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ending.set()
        writer.join()


def _second_run(first: Headrace) -> DrivenRun:
    run = DrivenRun(first.config, first.name, first.config.parent.parent, output="second")
    run.arguments = ("--standby",)
    return run


def _wait_standing_by(run: DrivenRun) -> None:
    """Return once it says behind which process it stands by."""
    told = "standby: the run on "
    run.wait_until(
        lambda: str(run.status().get("reason", "")).startswith(told), "did not stand by", _READY_WITHIN
    )


@pytest.mark.parametrize("fault", [DrivenRun.kill, DrivenRun.suspend])
def test_the_one_that_stands_by_takes_over(deploy: Deploy, fault: Callable[[DrivenRun], None]) -> None:
    with deploy() as first:
        first.start()
        first.wait_ready()
        second = _second_run(first)
        try:
            second.start()
            _wait_standing_by(second)
            assert second.ask("/readyz").status == 503
            assert second.ask("/healthz").status == 200
            with _writing(first.shop):
                assert not until(lambda: second.status().get("phase") != "standby", 10), "it did not wait"
                fault(first)
                second.wait_until(second.is_ready, "did not take over", _READY_WITHIN)
                if fault is DrivenRun.suspend:
                    first.resume()
                    assert first.wait_end(60) != 0, "the one that came back has to end itself"
                    assert "HEADRACE_SLOT_IN_USE" in first.last_output()
            first.close()
            assert until(lambda: first.differences() == [], 60), first.differences()
            second.terminate()
            assert first.differences() == []
        finally:
            second.close()


def test_it_takes_over_when_the_first_is_stopped_and_is_stopped_while_it_waits(deploy: Deploy) -> None:
    with deploy() as first:
        first.start()
        first.wait_ready()
        second = _second_run(first)
        try:
            second.start()
            _wait_standing_by(second)
            second.terminate()
            second.start()
            _wait_standing_by(second)
            first.terminate()
            first.shop.run("UPDATE users SET name = 'after' WHERE id = 1")
            second.wait_until(second.is_ready, "did not take over", _READY_WITHIN)
            assert until(lambda: first.differences() == [], 60), first.differences()
            second.terminate()
        finally:
            second.close()


def test_behind_another_deployment_that_writes_its_indexes_it_does_not_wait(deploy: Deploy) -> None:
    with deploy() as first:
        first.start()
        first.wait_ready()
        other = DrivenRun(first.config, f"{first.name}_b", first.config.parent.parent)
        other.arguments = ("--standby",)
        try:
            checked = other.run_command("check")
            assert f"the index {first.prefix}" in checked.stdout + checked.stderr
            other.start()
            assert other.wait_end(_READY_WITHIN) == 1
            assert "HEADRACE_SLOT_IN_USE" in other.last_output()
            assert f"the index {first.prefix}" in other.last_output(), "whichever is renewed first"
        finally:
            other.close()


def test_a_suspended_driver_whose_java_goes_on_confirms_nothing_and_is_taken_over_from(
    deploy: Deploy,
) -> None:
    """Its tasks write what they read until the slot is taken from it (decision 0086)."""
    with deploy() as first:
        first.start()
        first.wait_ready()
        first.converges()
        second = _second_run(first)
        try:
            second.start()
            _wait_standing_by(second)
            first.suspend_first()
            shop = first.shop
            began = shop.id("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
            change = shop.change("UPDATE users SET name = 'meanwhile' WHERE id = 1")
            assert change
            assert until(lambda: not first.differences(), 12), "its Java has written nothing"
            assert first.confirmed() <= began, "what only its Java has written is confirmed"
            assert second.status()["phase"] == "standby"
            with _writing(shop):
                second.wait_until(second.is_ready, "did not take over", _READY_WITHIN)
                time.sleep(15)
            assert until(lambda: first.differences() == [], 60), first.differences()
            first.resume()
            assert first.wait_end(60) != 0, "the one that came back has to end itself"
            first.close()
            shop.run("UPDATE users SET name = 'at the end' WHERE id = 2")
            assert until(lambda: first.differences() == [], 60), first.differences()
            second.terminate()
        finally:
            second.close()
