"""A run in a thread of its own is told to end by another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.assembly.transform import load_transform
from headrace.pipeline.controller.observe import Observer
from headrace.pipeline.stopping import Stopped, Stopping


def ended(stopping: Stopping, work: Callable[[threading.Event], None]) -> list[str]:
    """How `work` ends in a thread that is told to stop once it has begun."""
    begun, said = threading.Event(), []

    def run() -> None:
        try:
            work(begun)
            said.append("done")
        except Stopped:
            said.append("stopped")

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(30)
    stopping.stop()
    thread.join(30)
    assert not thread.is_alive()
    return said


def test_what_has_no_loop_that_would_notice_is_interrupted() -> None:
    stopping = Stopping()

    def wait(begun: threading.Event) -> None:
        with stopping.interrupting():
            begun.set()
            while True:
                time.sleep(0.01)

    assert ended(stopping, wait) == ["stopped"]


def test_a_stop_is_no_failure_of_the_module_that_a_reload_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = Stopping()
    (tmp_path / "imported_for_ever.py").write_text("import time\nwhile True:\n    time.sleep(0.01)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def read(begun: threading.Event) -> None:
        with stopping.interrupting():
            threading.Timer(0.2, begun.set).start()
            load_transform("imported_for_ever:shout")

    assert ended(stopping, read) == ["stopped"]


def test_a_loop_that_notices_is_not() -> None:
    stopping = Stopping()

    def wait(begun: threading.Event) -> None:
        with stopping.interrupting():
            pass
        begun.set()
        while not stopping.is_set():
            time.sleep(0.01)
        time.sleep(0.05)

    assert ended(stopping, wait) == ["done"]


def test_what_must_not_stop_half_way_is_finished_first() -> None:
    stopping = Stopping()
    finished: list[bool] = []

    def wait(begun: threading.Event) -> None:
        with stopping.interrupting():
            with stopping.patient():
                begun.set()
                while not stopping.is_set():
                    time.sleep(0.01)
                finished.append(True)
            finished.append(False)

    assert ended(stopping, wait) == ["stopped"]
    assert finished == [True]


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002])
def test_it_never_arrives_behind_the_part_that_it_interrupts(delay: float) -> None:
    """Whoever leaves the part while somebody stops it is stopped there, or not at all."""
    for _ in range(50):
        stopping, begun, late = Stopping(), threading.Event(), list[str]()
        thread = threading.Thread(target=leave, args=(stopping, begun, late))
        thread.start()
        assert begun.wait(30)
        time.sleep(delay)
        stopping.stop()
        thread.join(30)
        assert late == []


def leave(stopping: Stopping, begun: threading.Event, late: list[str]) -> None:
    """Leave such a part after a millisecond; `late` tells of what arrives after it."""
    try:
        with stopping.interrupting():
            begun.set()
            time.sleep(0.001)
    except Stopped:
        return
    try:
        for _ in range(100):
            time.sleep(0.00002)
    except Stopped:
        late.append("late")


def test_a_stop_does_not_wait_for_a_mailbox_that_hangs() -> None:
    """The run's thread reads orders in each round, of a cluster that perhaps does not answer."""
    stopping, nothing = Stopping(), cast("Any", None)

    class Hanging:
        def open_orders(self) -> tuple[()]:
            threading.Timer(0.05, stopping.stop).start()
            end = time.monotonic() + 20
            while time.monotonic() < end:
                time.sleep(0.01)
            raise AssertionError("it was not interrupted")

    definitions = SimpleNamespace(project=SimpleNamespace(deployment=None))
    observer = Observer(
        health=nothing,
        store=nothing,
        definitions=cast("Any", definitions),
        sinks={},
        stream=nothing,
        budget=nothing,
        reloads=nothing,
        desk=cast("Any", Hanging()),
        lease=nothing,
        stopping=stopping,
    )
    with pytest.raises(Stopped):
        observer._desired()
