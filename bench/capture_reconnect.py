"""How soon do changes come again when the server's sender is killed? `python bench/capture_reconnect.py`.

From pg_terminate_backend on the walsender to the next change, committed right after it, in Arrow.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from time import perf_counter

from harness import report
from harness.log import PATIENCE_SECONDS, PUBLICATION, Log, log_server
from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute

BAR_SECONDS = 0.3
_KILL = """
    SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
    WHERE slot_name = $1 AND active_pid IS NOT NULL
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 times instead of 50")
    times = 10 if parser.parse_args().quick else 50
    logging.disable()  # each lost connection is a warning
    with log_server() as log:
        [slot] = log.slots(1)
        position = log.start(slot)
        stream = ChangeStream(StreamSettings(log.url, slot, PUBLICATION), position)
        stream.open()
        taken = []
        position = _next(stream, log, position)
        for _ in range(times):
            with connect(log.url) as connection:
                assert until(lambda: bool(execute(connection, _KILL, (slot,))), PATIENCE_SECONDS)
            begin = perf_counter()
            position = _next(stream, log, position)
            taken.append(perf_counter() - begin)
            time.sleep(0.2)
        stream.close()
    report.machine()
    report.times([("killed → next change", taken)])
    sys.exit(not report.result("capture_reconnect.p50", BAR_SECONDS / report.quantile(taken, 50), 1.0))


def _next(stream: ChangeStream, log: Log, position: Offset) -> Offset:
    """Commit a change, and wait until its batch is read."""
    log.write_one()
    deadline = perf_counter() + PATIENCE_SECONDS
    while True:
        assert perf_counter() < deadline
        stream.confirm(position)
        behind = stream.next_offset(position, Limit(1 << 20), 0.25)
        if behind != position:
            changes = stream.changes(position, behind)
            position = behind
            if changes:
                return position


if __name__ == "__main__":
    main()
