"""A plan is taken once, between two batches, and whoever left it learns from where on it holds."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.stream.plan_reload import PlanReload, PlanReloadReader


def test_a_plan_is_taken_once_and_the_newest_of_several(tmp_path: Path) -> None:
    reload = PlanReload(tmp_path / "plan")
    taking = PlanReloadReader(reload)
    taking.look(10)
    assert (taking.plan, reload.taken()) == (None, None)
    reload.offer(1, "first")
    assert reload.taken() is None
    taking.look(20)
    assert (taking.plan, reload.taken()) == ("first", (1, 20))
    taking.look(30)
    assert reload.taken() == (1, 20), "it holds from there"
    reload.offer(2, "second")
    reload.offer(3, "third")
    taking.look(40)
    assert (taking.plan, reload.taken()) == ("third", (3, 40))


def test_an_older_one_is_never_taken_again(tmp_path: Path) -> None:
    reload = PlanReload(tmp_path / "plan")
    taking = PlanReloadReader(reload)
    reload.offer(2, "second")
    taking.look(20)
    reload.offer(1, "first")
    taking.look(30)
    assert (taking.plan, reload.taken()) == ("second", (2, 20))
