"""Relay what Java and its Python processes print, so that each line of a run's log is a JSON object."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

_LOG = logging.getLogger(__name__)
_END_SECONDS = 5.0


@contextlib.contextmanager
def json_lines() -> Iterator[BinaryIO]:
    """Yield a file for other processes; their JSON lines go to the standard error, other lines to the log.

    Java prints some lines before its own log is set up, and when it ends for want of memory.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_relay, args=(reading,), name="headrace relay", daemon=True)
    thread.start()
    with os.fdopen(writing, "wb") as output:
        yield output
    thread.join(_END_SECONDS)  # until the last process that has the file is gone


def _relay(reading: int) -> None:
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if _is_json(line):
                sys.stderr.write(line)
            elif text := line.strip():
                _LOG.info("%s", text)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
