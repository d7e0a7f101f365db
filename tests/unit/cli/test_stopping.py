import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.cli.stopping import Stopped, Stopping


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopping = Stopping()
    stopping.install()
    yield stopping
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_an_end_and_interrupts_nothing(
    stopping: Stopping, number: signal.Signals
) -> None:
    os.kill(os.getpid(), number)
    assert stopping.wait(5)


def test_where_no_loop_would_notice_the_first_signal_interrupts(stopping: Stopping) -> None:
    def work() -> None:
        with stopping.interrupting():
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal did not interrupt")

    with pytest.raises(Stopped):
        work()
    assert stopping.is_set()


def test_what_is_told_to_stop_does_not_begin(stopping: Stopping) -> None:
    stopping.set()
    with pytest.raises(Stopped), stopping.interrupting():
        pytest.fail("it began")


def test_behind_the_block_a_signal_interrupts_nothing_any_more(stopping: Stopping) -> None:
    with stopping.interrupting():
        pass
    os.kill(os.getpid(), signal.SIGINT)
    assert stopping.wait(5)


def test_the_second_signal_ends_the_process_at_once() -> None:
    program = """
import os, signal
from headrace.cli.stopping import Stopping
stopping = Stopping()
stopping.install()
os.kill(os.getpid(), signal.SIGTERM)
assert stopping.wait(5)
try:
    os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
