"""One job at a time is beside the stream, and none before the stream gets on."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.spark.jobs import RECENT_SECONDS, JobGate

SHORT = 0.5


def took(job_gate: JobGate, ending: threading.Event) -> bool:
    with job_gate.acquire(ending):
        return True


def test_jobs_run_side_by_side_before_there_are_readers() -> None:
    job_gate, running = JobGate(), threading.Event()
    with ThreadPoolExecutor(1) as threads, job_gate.acquire(running):
        assert threads.submit(took, job_gate, running).result(20)
        assert job_gate.is_busy
    assert not job_gate.is_busy


@pytest.mark.parametrize("read", [True, False], ids=["for the readers", "for the limits"])
def test_one_job_waits_for_the_other(read: bool) -> None:
    job_gate, running = JobGate(lambda: read, one_at_a_time=not read), threading.Event()
    job_gate.begin()
    with ThreadPoolExecutor(1) as threads:
        with job_gate.acquire(running):
            second = threads.submit(took, job_gate, running)
            with pytest.raises(TimeoutError):
                second.result(SHORT)
        assert second.result(20)


def test_none_is_before_the_stream_gets_on() -> None:
    job_gate, running = JobGate(lambda: True), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(took, job_gate, running)
        with pytest.raises(TimeoutError):
            first.result(SHORT)
        job_gate.begin()
        assert first.result(20)


@pytest.mark.parametrize("read", [True, False], ids=["for the stream", "for another job"])
def test_whoever_ends_waits_for_nobody(read: bool) -> None:
    job_gate, running = JobGate(lambda: read, one_at_a_time=True), threading.Event()
    ending = threading.Event()
    ending.set()
    with ThreadPoolExecutor(1) as threads, contextlib.ExitStack() as held:
        if not read:
            held.enter_context(job_gate.acquire(running))
        with pytest.raises(HeadraceError) as caught:
            threads.submit(took, job_gate, ending).result(20)
    assert caught.value.kind is Kind.SPARK


def test_what_is_beside_makes_room_for_a_stream_with_readers() -> None:
    now = {"read": True, "seconds": 0.2, "clock": 0.0}
    job_gate = JobGate(lambda: bool(now["read"]), clock=lambda: now["clock"])
    job_gate.batch_seconds = lambda: now["seconds"]
    running = threading.Event()
    job_gate.begin()
    found = [job_gate.crowded()]
    for read, seconds in ((True, 0.2), (True, 1.0), (True, 1.0), (True, 0.2), (False, 1.0), (True, 1.0)):
        now |= {"read": read, "seconds": seconds}
        took(job_gate, running)
        found.append(job_gate.crowded())
    assert found == [True, False, True, True, False, False, True]
    now |= {"seconds": 0.2}
    assert not job_gate.crowded()
    now["clock"] += RECENT_SECONDS + 1
    assert job_gate.crowded(), "the first one in a while"
    assert not JobGate().crowded()
