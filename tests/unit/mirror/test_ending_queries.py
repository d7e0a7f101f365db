"""A batch that takes longer than Spark waits for it is finished, and is no failure of the mirror."""

import threading

import pytest
from pyspark.errors import PySparkException

from headrace.mirror import run
from headrace.mirror.run import end_query


class BusyQuery:
    """As Spark's query whose batch still takes so many of the times that `stop` waits."""

    def __init__(self, waits: float) -> None:
        self.waits = waits

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark calls it
        return self.waits > 0

    def stop(self) -> None:
        self.waits -= 1
        if self.waits > 0:
            raise PySparkException("Caused by: SparkException: The stream thread was last executing: …")


def test_a_batch_is_written_to_its_end_where_tables_were_altered() -> None:
    query = BusyQuery(5)
    end_query(query, threading.Event())  # type: ignore[arg-type]
    assert not query.isActive


def test_a_mirror_that_is_asked_to_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_STOP_SECONDS", 0.0)
    stopping = threading.Event()
    stopping.set()
    query = BusyQuery(float("inf"))
    end_query(query, stopping)  # type: ignore[arg-type]
    assert query.isActive
