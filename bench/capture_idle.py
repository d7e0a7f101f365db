"""What does a stream cost while nothing happens? `python bench/capture_idle.py [--quick]`.

Processor time of a process that follows a slot of a quiet database and asks for batches all the time, as
Spark does, after its first second.
"""

from __future__ import annotations

import argparse
import sys
import time

from harness import report
from harness.log import PUBLICATION, log_server
from headrace.capture import ChangeStream, StreamSettings
from headrace.capture.buffer import Limit

BAR = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five seconds instead of thirty")
    seconds = 5 if parser.parse_args().quick else 30
    with log_server() as log:
        [slot] = log.slots(1)
        position = log.start(slot)
        stream = ChangeStream(StreamSettings(log.url, slot, PUBLICATION), position)
        stream.open()
        used = [0.0, 0.0]
        for phase, duration in enumerate((1, seconds)):
            begin, end = time.process_time(), time.monotonic() + duration
            while time.monotonic() < end:
                stream.confirm(position)
                position = stream.next_offset(position, Limit(1 << 20), 0.25)
            used[phase] = (time.process_time() - begin) / duration
        stream.close()
    report.machine()
    report.table(("", "% of a core"), [("following a quiet slot", f"{100 * used[1]:.2f}")])
    sys.exit(not report.result("capture_idle", BAR / used[1], 1.0))


if __name__ == "__main__":
    main()
