"""Do writers that never wait for the pipeline find their work in the indexes, whatever happens to it?"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.tools.demo.shop import INDEXES
from support.shop_oracle import differences
from support.shop_workload import Workload

_PAUSE = 0.02


@pytest.fixture(scope="module")
def busy(deploy: Deploy) -> Iterator[Headrace]:
    """A deployment that was backfilled while two writers were at work, which began before its first start."""
    with deploy(users=100) as pipeline:
        with _writers(pipeline.shop.url, seeds=(21, 22)) as done:
            time.sleep(1)
            pipeline.start()
            pipeline.wait_ready()
            time.sleep(2)
        assert done["commit"] > 100
        yield pipeline


@contextlib.contextmanager
def _writers(url: str, seeds: tuple[int, ...]) -> Iterator[Counter[str]]:
    """Workloads in threads, one for each seed; afterwards the counter says what they did."""
    end = threading.Event()
    done: Counter[str] = Counter()

    def work(seed: int) -> Counter[str]:
        with Workload(url, seed) as workload:
            workload.run(end, _PAUSE)
        return workload.done

    with ThreadPoolExecutor(len(seeds)) as pool:
        running = [pool.submit(work, seed) for seed in seeds]
        try:
            yield done
        finally:
            end.set()
        for one in running:
            done.update(one.result())


@pytest.mark.long
def test_writers_from_before_the_first_start_until_after_the_backfill(busy: Headrace) -> None:
    """No change falls between the snapshot and the stream.

    Flusso's hole 2, drasi's hole 1.
    """
    busy.converges()


@pytest.mark.long
def test_kills_at_any_moment_under_writers(busy: Headrace) -> None:
    """In the live stream, and again while it starts; the writers go on through all of it.

    Flusso's hole 1, with kills at the moment when a slot is confirmed half-way.
    """
    with _writers(busy.shop.url, seeds=(31, 32)) as done:
        time.sleep(1.5)
        busy.kill()
        busy.start()
        time.sleep(4)
        busy.kill()
        busy.start()
        busy.wait_ready()
    assert done["commit"] > 100
    busy.converges()


@pytest.mark.long
def test_the_followed_indexes_equal_a_fresh_rebuild(busy: Headrace, deploy: Deploy) -> None:
    """A second deployment with its own slot and prefix seeds the same database from nothing."""
    busy.converges()
    with deploy(shop=busy.shop) as fresh:
        fresh.start()
        fresh.wait_ready()
        for index in INDEXES:
            assert differences(fresh.documents(index), busy.documents(index)) == []
        fresh.terminate()
    busy.terminate()
