"""How does whoever waits for a Spark job stop waiting, and the job with it?"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

from pyspark import SparkContext

_POLL_SECONDS = 0.2

_Result = TypeVar("_Result")


def interruptibly(context: SparkContext, group: str, work: Callable[[Event], _Result]) -> _Result:
    """What `work` gives, whose jobs are of `group`; whoever is interrupted meanwhile ends them.

    In a thread of its own, because each thread has one line to the JVM: the one that is interrupted has to
    cancel and to stop over its own, on which no half-read answer may lie.

    Args:
        work: told by an event that it is to end.
    """
    ending = Event()
    with ThreadPoolExecutor(1, "headrace job") as thread:
        doing = thread.submit(work, ending)
        try:
            return doing.result()
        except BaseException:
            ending.set()
            while not doing.done():  # again and again: the job may not have begun yet
                context.cancelJobGroup(group)
                wait([doing], _POLL_SECONDS)
            raise
