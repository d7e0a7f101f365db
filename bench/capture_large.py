"""How long does a large transaction take from its commit to its last row? `python bench/capture_large.py`.

The server sends it while it runs, or keeps it and sends it at its end; both in alternation, everything else
alike: a million rows of 200 bytes, written while the stream is read.
"""

from __future__ import annotations

import argparse
import sys
import threading
from time import perf_counter

from harness import report
from harness.log import PUBLICATION, Log, log_server
from headrace.capture import ChangeStream, StreamSettings
from headrace.capture.buffer import Limit
from headrace.postgres.connection import connect, execute

ROW = "INSERT INTO wide SELECT g, repeat(md5(g::text), 6) FROM generate_series({0}, {1}) g"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200,000 rows, twice")
    given = parser.parse_args()
    rows, rounds = (200_000, 2) if given.quick else (1_000_000, 3)
    report.machine()
    taken: dict[bool, list[float]] = {True: [], False: []}
    with log_server() as log:
        with connect(log.url) as connection:
            execute(connection, "CREATE TABLE wide (id bigint PRIMARY KEY, data text)")
            execute(connection, f"ALTER PUBLICATION {PUBLICATION} ADD TABLE wide")
        for number in range(2 * rounds):
            unfinished = number % 2 == 0
            taken[unfinished].append(behind_commit(log, number * rows, rows, unfinished=unfinished))
    report.machine()
    report.times([("sent while it runs", taken[True]), ("sent at its end", taken[False])])
    ratio = report.quantile(taken[False], 50) / report.quantile(taken[True], 50)
    sys.exit(not report.result("capture_large", ratio, 1.0))


def behind_commit(log: Log, first: int, rows: int, *, unfinished: bool) -> float:
    """Seconds from the commit of a transaction to its last row in Arrow."""
    [slot] = log.slots(1)
    start = log.start(slot)
    settings = StreamSettings(log.url, slot, PUBLICATION, backlog_bytes=None, unfinished=unfinished)
    stream = ChangeStream(settings, start)
    done: list[float] = []

    def read() -> None:
        seen, position, limit = 0, start, Limit(16 << 20)
        while seen < rows:
            stream.confirm(position)
            behind = stream.next_offset(position, limit, 1.0)
            if behind != position:
                seen += sum(batch.num_rows for batch in stream.changes(position, behind))
                position = behind
        done.append(perf_counter())

    stream.open()
    reading = threading.Thread(target=read)
    reading.start()
    try:
        with connect(log.url) as connection:
            execute(connection, ROW.format(first + 1, first + rows))
        committed = perf_counter()
        reading.join()
    finally:
        stream.close()
    log.drop(slot)
    return done[0] - committed


if __name__ == "__main__":
    main()
