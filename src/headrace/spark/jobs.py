"""Run Spark jobs so that an interrupt of the caller cancels them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

from pyspark import SparkContext

_POLL_SECONDS = 0.2

_Result = TypeVar("_Result")


def interruptibly(context: SparkContext, group: str, work: Callable[[Event], _Result]) -> _Result:
    """Return the result of `work`; if the caller is interrupted meanwhile, cancel the jobs of `group`.

    `work` runs in a thread of its own, because each thread has its own connection to the JVM: the interrupted
    thread cancels over its own, which holds no half-read answer.

    Args:
        context: Spark's.
        group: the job group of `work`'s jobs.
        work: gets an event that is set when it has to end.
    """
    ending = Event()
    with ThreadPoolExecutor(1, "headrace job") as thread:
        future = thread.submit(work, ending)
        try:
            return future.result()
        except BaseException:
            ending.set()
            while not future.done():  # repeated: the job may not have started yet
                context.cancelJobGroup(group)
                wait([future], _POLL_SECONDS)
            raise
