"""What the JVM prints does not fill the disk."""

from __future__ import annotations

import time
from pathlib import Path

from headrace.spark.session import bound_log


def test_a_file_that_others_append_to_is_emptied_when_it_is_large(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with log.open("ab", buffering=0) as output, bound_log(log, most=100, seconds=0.01):
        output.write(b"a" * 90)
        time.sleep(0.1)
        assert log.stat().st_size == 90
        output.write(b"b" * 90)
        deadline = time.monotonic() + 10
        while log.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.01)
        output.write(b"c")
        assert log.read_bytes() == b"c", "whoever appends goes on at the new end"
