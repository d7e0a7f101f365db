"""The driver's part of `postgres_cdc` without Spark: its calls in Spark's order, a checkpoint as a list."""

from __future__ import annotations

import itertools
import json
import pickle
import signal
import time
from collections.abc import Callable
from typing import Any

from headrace.datasources.envelopes import changes_schema
from headrace.datasources.options import read_options
from headrace.datasources.postgres_cdc import CdcReader
from headrace.datasources.query_schema import plan_rows
from headrace.datasources.read_limits import ReadAllAvailable
from headrace.datasources.source_options import CdcOptions
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot

ITEM = "CREATE TABLE item (id int PRIMARY KEY, name text)"
_WITHIN = 60.0
_numbers = itertools.count(1)


class Query:
    """A query that is begun and ended by hand.

    Attributes:
        offsets: what a checkpoint holds, in order; the first is where the query began.
        rows: what has come out, as dicts.
    """

    def __init__(self, url: str, **options: str) -> None:
        self.url = url
        self.slot = f"driven_{next(_numbers)}"
        self.options = {"url": url, "slot": self.slot, "publication": self.slot, **options}
        self.offsets: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self._reader: CdcReader | None = None
        self._kept = signal.getsignal(signal.SIGTERM)

    def sql(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        with connect(self.url) as connection:
            for statement in statements:
                execute(connection, statement)

    @property
    def reader(self) -> CdcReader:
        """The reader of this start; a stopped query gets a new one, as it gets a new process."""
        if self._reader is None:
            options = read_options(CdcOptions, self.options, "postgres_cdc")
            plan = None
            if options.form == "rows" and options.one_table is not None:
                plan = plan_rows(options, options.one_table)
            else:
                changes_schema(options)
            self._reader = CdcReader(options, plan)
        return self._reader

    def step(self) -> list[dict[str, Any]]:
        """One batch; its rows."""
        if not self.offsets:
            self.offsets.append(as_stored(self.reader.initialOffset()))
        start = self.offsets[-1]
        end = as_stored(self.reader.latestOffset(start, ReadAllAvailable()))
        if end == start:
            return []
        self.offsets.append(end)
        found = self.batch(start, end)
        self.rows += found
        return found

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows of (start, end]."""
        parts = [pickle.loads(pickle.dumps(one)) for one in self.reader.partitions(start, end)]
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def until(self, condition: Callable[[], bool]) -> None:
        """Batches until something is true."""
        deadline = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < deadline, self.rows
            self.step()

    @staticmethod
    def until_true(condition: Callable[[], bool], within: float = _WITHIN) -> None:
        """Wait for what the server, or Spark, does by itself."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next rows; no more than `count` may come."""
        before = len(self.rows)
        self.until(lambda: len(self.rows) >= before + count)
        assert len(self.rows) == before + count, self.rows[before:]
        return self.rows[before:]

    def settle(self) -> None:
        """Batches until the offset is one of the stream, not of the first rows."""
        self.step()
        self.until(lambda: "snapshot" not in self.offsets[-1])

    def stop(self) -> None:
        """As when Spark ends the process of the reader."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        signal.signal(signal.SIGTERM, self._kept)

    def restart(self, **options: str) -> None:
        """A new process, perhaps with other options, on the same checkpoint."""
        self.stop()
        self.options |= options

    def close(self) -> None:
        self.stop()
        with connect(self.url) as connection:
            drop_slot(connection, self.slot, timeout=60)


def as_stored(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as a checkpoint gives it back."""
    kept: dict[str, Any] = json.loads(json.dumps(offset))
    return kept
