"""A plan is taken once, between two batches, and whoever left it learns from where on it holds."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.stream.plan_reload import PlanReload, PlanReloadReader


def test_a_plan_is_taken_once_and_the_newest_of_several(tmp_path: Path) -> None:
    switch = PlanReload(tmp_path / "plan")
    taking = PlanReloadReader(switch)
    taking.look(10)
    assert (taking.plan, switch.taken()) == (None, None)
    switch.give(1, "first")
    assert switch.taken() is None
    taking.look(20)
    assert (taking.plan, switch.taken()) == ("first", (1, 20))
    taking.look(30)
    assert switch.taken() == (1, 20), "it holds from there"
    switch.give(2, "second")
    switch.give(3, "third")
    taking.look(40)
    assert (taking.plan, switch.taken()) == ("third", (3, 40))


def test_an_older_one_is_never_taken_again(tmp_path: Path) -> None:
    switch = PlanReload(tmp_path / "plan")
    taking = PlanReloadReader(switch)
    switch.give(2, "second")
    taking.look(20)
    switch.give(1, "first")
    taking.look(30)
    assert (taking.plan, switch.taken()) == ("second", (2, 20))
