"""Signals, each in a process of its own: an orderly end that takes too long cuts its process off."""

import subprocess
import sys

import pytest

BEGINNING = """
import os, signal
from headrace.cli.signals import stopping_by_signals
from headrace.pipeline.stopping import Stopped

stopping = stopping_by_signals()

def stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
"""


def ended(program: str) -> tuple[int, str]:
    """Exit code and output of a program that can be stopped."""
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_the_first_signal_asks_for_an_end_and_interrupts_nothing(number: str) -> None:
    assert ended(f"stop(signal.{number})\nprint(stopping.wait(5))") == (0, "True")


def test_where_no_loop_would_notice_the_first_signal_interrupts() -> None:
    program = """
try:
    with stopping.interrupting():
        stop()
        print("not interrupted")
except Stopped:
    print("interrupted", stopping.is_set())
"""
    assert ended(program) == (0, "interrupted True")


def test_what_is_told_to_stop_does_not_begin() -> None:
    program = """
stopping.set()
try:
    with stopping.interrupting():
        print("begun")
except Stopped:
    print("not begun")
"""
    assert ended(program) == (0, "not begun")


def test_what_must_not_stop_half_way_is_finished_and_nothing_behind_it_begins() -> None:
    program = """
try:
    with stopping.interrupting():
        with stopping.patient():
            stop()
            print("finished", stopping.is_set())
        print("begun")
except Stopped:
    print("interrupted")
"""
    assert ended(program) == (0, "finished True\ninterrupted")


def test_behind_what_was_finished_the_first_signal_interrupts_again() -> None:
    program = """
try:
    with stopping.interrupting():
        with stopping.patient():
            pass
        stop()
        print("not interrupted")
except Stopped:
    print("interrupted")
"""
    assert ended(program) == (0, "interrupted")


def test_behind_the_block_a_signal_interrupts_nothing_any_more() -> None:
    assert ended("with stopping.interrupting():\n    pass\nstop()\nprint(stopping.wait(5))") == (0, "True")


def test_the_second_signal_ends_the_process_at_once() -> None:
    assert ended("stop()\nassert stopping.wait(5)\ntry:\n    stop()\nfinally:\n    print('here')") == (
        130,
        "",
    )


def test_an_end_that_takes_too_long_is_cut_off() -> None:
    shortened = "from headrace.cli import signals as room\nroom._LONGEST_SECONDS = 0.2\n"
    assert ended(shortened + "stop()\nsignal.pause()\nsignal.pause()\nprint('here')") == (0, "")


@pytest.mark.parametrize(
    ("ignored", "said"), [("", "True"), ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", "reloads\nFalse")]
)
def test_a_terminal_that_closes_ends_a_run_that_was_not_begun_with_nohup(ignored: str, said: str) -> None:
    program = f"""
from headrace.cli import signals as room
there = iter([True, False])
room._has_terminal = lambda: next(there)
{ignored}
room.reload_by_signal(lambda: print("reloads"), stopping)
stop(signal.SIGHUP)
print(stopping.is_set())
"""
    assert ended(program) == (0, said)
