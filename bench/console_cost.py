"""What does an open console cost the stream? `python bench/console_cost.py [--quick]`.

The transactions of `drain`, in turns with and without readers of the console: each takes its events,
and the curve once a minute, as the page does. They draw nothing: a browser runs on another machine. The
median of the pairs' ratios counts, each pair the other way round than the one before.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
from collections.abc import Iterator

import urllib3

from harness import report
from harness.deployment import Deployment, shop
from harness.live import drain, ids_of

BAR = 0.97
READERS = 3
WARM_UP_TURNS = 3
CURVE_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 4 turns instead of 10")
    given = parser.parse_args()
    turns, count = (4, 2_000) if given.quick else (10, 4_000)
    with shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        items = ids_of(deployment, "SELECT id FROM public.order_items ORDER BY id")
        chosen = random.Random(1).sample(items, count)
        for _ in range(WARM_UP_TURNS):
            drain(deployment, chosen)
        without: list[float] = []
        watched: list[float] = []
        events = 0
        for turn in range(2 * turns):
            if turn % 4 in {0, 3}:
                without.append(count / drain(deployment, chosen))
                continue
            with console_readers(deployment, READERS) as readers:
                watched.append(count / drain(deployment, chosen))
            events += sum(reader.events for reader in readers)
        report.machine()
        deployment.run.terminate()
    assert events > turns * READERS, f"only {events} events came: nobody watched"
    rows = [
        ("nobody looks", *(f"{rate:,.0f}" for rate in without)),
        (f"{READERS} consoles open", *(f"{rate:,.0f}" for rate in watched)),
    ]
    report.table((f"changes/s, {count:,} transactions", *("" for _ in without)), rows)
    print(f"{events:,} events were taken")
    sys.exit(not report.result("console_cost", report.paired(watched, without), BAR))


class Reader(threading.Thread):
    """Read the console's events and its curve until `stop` is set.

    Attributes:
        events: how many came.
    """

    def __init__(self, address: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.events = 0
        self._address = address
        self._stop_reading = stop

    def run(self) -> None:
        """Read until told to stop."""
        with urllib3.PoolManager(retries=False) as pool:
            pool.request("GET", f"{self._address}/")
            answer = pool.request("GET", f"{self._address}/console/events", preload_content=False)
            for chunk in answer.stream(65_536):
                self.events += chunk.count(b"data:")
                if self._stop_reading.is_set():
                    break
            answer.close()


@contextlib.contextmanager
def console_readers(deployment: Deployment, count: int) -> Iterator[list[Reader]]:
    """Keep the console open in `count` places."""
    stop = threading.Event()
    readers = [Reader(deployment.run.page, stop) for _ in range(count)]
    for reader in readers:
        reader.start()
    curve = threading.Thread(target=_read_curves, args=(deployment.run.page, stop), daemon=True)
    curve.start()
    try:
        yield readers
    finally:
        stop.set()
        for thread in (curve, *readers):
            thread.join(10)


def _read_curves(address: str, stop: threading.Event) -> None:
    while True:
        for _ in range(READERS):
            urllib3.request("GET", f"{address}/console/lag", retries=False, timeout=10)
        if stop.wait(CURVE_SECONDS):
            return


if __name__ == "__main__":
    main()
