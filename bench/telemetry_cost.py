"""What do traces cost the stream? `python bench/telemetry_cost.py [--quick]`.

The transactions of `drain`, in turns with and without a collector of traces; each turn is a run of its
own, warmed up alike. The collector takes requests and does not read them: it runs on another machine.
"""

from __future__ import annotations

import argparse
import random
import sys

from harness import report
from harness.deployment import Deployment, shop
from harness.live import drain, ids_of
from support.otlp_receiver import OtlpReceiver

BAR = 0.97
WARM_UP_TURNS, TURNS = 2, 3


class Drain(OtlpReceiver):
    """A collector that drops what it takes.

    Attributes:
        received: how many bytes came.
    """

    received = 0

    def take(self, body: bytes) -> None:
        """Count a request's bytes."""
        self.received += len(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 2 turns instead of 5")
    given = parser.parse_args()
    turns, count = (2, 2_000) if given.quick else (5, 4_000)
    without: list[float] = []
    traced: list[float] = []
    with (
        shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment,
        Drain() as collector,
    ):
        deployment.run.start()
        deployment.run.wait_ready()
        deployment.run.terminate()
        items = ids_of(deployment, "SELECT id FROM public.order_items ORDER BY id")
        chosen = random.Random(1).sample(items, count)
        for _ in range(turns):
            without.append(rate(deployment, chosen, {}))
            asked = collector.requests
            traced.append(rate(deployment, chosen, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}))
            assert collector.requests > asked, "no spans came: nothing was traced"
    rows = [
        ("no traces", *(f"{each:,.0f}" for each in without)),
        ("traces", *(f"{each:,.0f}" for each in traced)),
    ]
    report.table((f"changes/s, {count:,} transactions", *("" for _ in without)), rows)
    print(f"{collector.received / 1e3:,.0f} kB of spans were taken in {collector.requests:,} requests")
    sys.exit(not report.result("telemetry_cost", report.paired(traced, without), BAR))


def rate(deployment: Deployment, chosen: list[int], variables: dict[str, str]) -> float:
    """The changes a second of a run with these variables."""
    run = deployment.run
    run.variables = variables
    run.start()
    run.wait_ready()
    for _ in range(WARM_UP_TURNS):
        drain(deployment, chosen)
    took = sum(drain(deployment, chosen) for _ in range(TURNS))
    run.terminate()
    return TURNS * len(chosen) / took


if __name__ == "__main__":
    main()
