"""Do documents a second grow with the executors of a cluster? `python bench/scale_out.py [--quick]`.

A real Spark cluster with 1, 2, 4 and 8 executors of one core fills the indexes of a shop. The servers
stand for slow ones: each bulk request is answered a fixed time later, so that two processors are no
limit. The ratio is the growth from one executor to eight, as a share of eight times. Then rows are
updated, and what each kind of process spends for them is told for a million changes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from harness import report
from harness.deployment import Deployment, shop
from harness.processor import ProcessorWatch
from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import write_deployment
from support.driven_run import DrivenRun
from support.http_proxy import HttpProxy, Request
from support.spark_cluster import SparkCluster

_EXECUTORS, _QUICK = (1, 2, 4, 8), (1, 4)
_BULK_DOCUMENTS, _BULK_SECONDS, _SMALL_BULK = 100, 1.0, 20
_BAR = 0.85
_READY_WITHIN = 1800.0
_UPDATES = 20_000


class Bulks:
    """Delays bulk requests and notes when each came, and with how many documents."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def delay(self, request: Request) -> None:
        """Wait where the request is a bulk of documents; those of the state are small."""
        documents = request.body.count(b"\n") // 2 if "_bulk" in request.target else 0
        if documents >= _SMALL_BULK:
            time.sleep(_BULK_SECONDS)
            self.seen.append((time.perf_counter(), documents))

    @property
    def rate(self) -> float:
        """Documents a second; without the beginning and the end, when not every executor has work."""
        apart = len(self.seen) // 8
        (first, _), *middle = self.seen[apart:-apart]
        return sum(documents for _, documents in middle) / (middle[-1][0] - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1 and 4 executors, 2,000 users (8,000)")
    given = parser.parse_args()
    report.machine()
    counts = _QUICK if given.quick else _EXECUTORS
    rates: dict[int, float] = {}
    with shop(2_000 if given.quick else 8_000) as deployment:
        for count in counts:
            rates[count] = _fill(deployment, count, is_last=count == counts[-1])
    rows = [(f"{n}", f"{rate:,.0f}", f"{rate / rates[1] / n:.2f}") for n, rate in rates.items()]
    report.table(("executors", "documents/s", "of one executor's, each"), rows)
    most = counts[-1]
    sys.exit(not report.result("scale_out", rates[most] / rates[1] / most, _BAR))


def _fill(deployment: Deployment, executors: int, *, is_last: bool) -> float:
    """Return the documents a second of a first backfill by so many executors."""
    bulks, name = Bulks(), f"scale{executors}"
    with (
        tempfile.TemporaryDirectory() as folder,
        HttpProxy(deployment.sink, spoil=bulks.delay) as proxy,
        SparkCluster(workers=executors, cores=1) as cluster,
        ProcessorWatch() as processor,
    ):
        config = write_deployment(Path(folder) / name, deployment.database, proxy.url, f"{name}_")
        small = config.read_text().replace(
            "[sinks.primary]", f"[sinks.primary]\nbatch_size = {_BULK_DOCUMENTS}"
        )
        config.write_text(small)
        run = DrivenRun(config, name, Path(folder), ready_within=_READY_WITHIN)
        run.arguments = cluster.arguments()
        try:
            run.start()
            run.wait_ready()
            proxy.heal()
            if is_last:
                _tell_cost(deployment, run, processor)
            run.terminate()
        finally:
            run.close()
    return bulks.rate


def _tell_cost(deployment: Deployment, run: DrivenRun, processor: ProcessorWatch) -> None:
    """Update rows, and print what each kind of process spends for a million of them."""
    before = processor.seconds()
    with connect(deployment.database) as connection:
        [(updated,)] = execute(
            connection,
            "WITH done AS (UPDATE public.orders SET total = total + 1 WHERE id IN "
            f"(SELECT id FROM public.orders LIMIT {_UPDATES}) RETURNING 1) SELECT count(*) FROM done",
        )
    waited = run.run_command("wait", "--timeout", "600", seconds=700)
    assert waited.returncode == 0, waited.stderr
    spent = processor.seconds() - before
    rows = [(kind, f"{seconds * 1e6 / updated:,.0f}") for kind, seconds in sorted(spent.items()) if seconds]
    report.table(("processor seconds for a million changes", ""), rows)


if __name__ == "__main__":
    main()
