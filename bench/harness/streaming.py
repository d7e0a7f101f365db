"""Compare a stream of Headrace with pg_recvlogical on the same log, in alternation."""

from __future__ import annotations

import argparse
import statistics
import sys

from harness import report
from harness.log import Log, follow, log_server, recvlogical

ROUNDS = 3


def compare(
    name: str,
    doc: str,
    *,
    changes: int,
    quick: int,
    per_transaction: int,
    bar: float,
    backlog_bytes: int | None = None,
) -> None:
    """Run one benchmark: read the same changes by both readers, each from slots of its own."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--changes", type=int, default=None, help=f"how many ({changes:,})")
    parser.add_argument("--quick", action="store_true", help=f"{quick:,} changes")
    given = parser.parse_args()
    count = given.changes or (quick if given.quick else changes)
    with log_server() as log:
        peers, ours = measure(log, count, per_transaction, backlog_bytes)
    report.machine()
    rows = [("pg_recvlogical → /dev/null", *_rates(count, peers)), ("Headrace → Arrow", *_rates(count, ours))]
    report.table((f"{count:,} changes", "seconds", "changes/s"), rows)
    sys.exit(not report.result(name, statistics.median(peers) / statistics.median(ours), bar))


def measure(
    log: Log, count: int, per_transaction: int, backlog_bytes: int | None = None
) -> tuple[list[float], list[float]]:
    """Seconds of each round of both; every round reads the same log."""
    slots = log.slots(2 * ROUNDS)
    end = log.write(count, per_transaction)
    peers, ours = [], []
    for peer, own in zip(slots[::2], slots[1::2], strict=True):
        report.machine()
        peers.append(recvlogical(log.url, peer, end))
        ours.append(follow(log, own, end, count, backlog_bytes=backlog_bytes))
        log.drop(peer)
        log.drop(own)
    return peers, ours


def _rates(count: int, seconds: list[float]) -> tuple[str, str]:
    middle = statistics.median(seconds)
    return f"{middle:.2f}", f"{count / middle:,.0f}"
