"""A sink beside others: whose failure is it?"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.pipeline.worker.failure_policy import SinkFailure, SinkFailureWriter
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.plain import PlainWriter
from headrace.testing.memory_sink import MemorySink


def operations(count: int, index: str = "users") -> Iterator[DocumentOperation]:
    for number in range(count):
        yield DocumentOperation(index, str(number), 1, b"{}")


def broken() -> Iterator[DocumentOperation]:
    yield from operations(3)
    raise HeadraceError(Kind.CONNECTION, "the database is away")


class Failing(DocumentWriter):
    """Takes nothing."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        raise self._error

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("kind", [Kind.SINK_BUSY, Kind.AUTHENTICATION, Kind.SINK_REJECTED])
def test_whatever_a_sink_fails_of_is_its_own_failure(kind: Kind) -> None:
    with pytest.raises(SinkFailure, match="full") as failed:
        SinkFailureWriter(Failing(HeadraceError(kind, "full", "Wait.")), str).write(operations(1))
    assert (failed.value.kind, failed.value.remedy) == (kind, "Wait.")
    assert isinstance(pickle.loads(pickle.dumps(failed.value)), SinkFailure)


def test_a_failure_names_the_generations_of_its_sink() -> None:
    """Of two sinks that name an index alike, the other one is not concerned."""
    error = HeadraceError(Kind.SINK_REJECTED, "it is gone").concerning(units=["users_1"])
    with pytest.raises(SinkFailure) as failed:
        SinkFailureWriter(Failing(error), "second/{}".format).write(operations(1))
    assert failed.value.units == {"second/users_1"}


def test_what_a_guest_raises_is_a_failure_with_a_remedy() -> None:
    with pytest.raises(SinkFailure, match="a sink failed: ZeroDivisionError") as failed:
        SinkFailureWriter(PlainWriter(lambda: Failing(ZeroDivisionError()), {}), str).write(operations(1))
    assert failed.value.kind is Kind.SINK_BUSY
    assert failed.value.remedy


def test_what_fails_on_the_way_to_a_sink_is_not_its_failure() -> None:
    sink = MemorySink()
    with pytest.raises(HeadraceError, match="the database is away") as failed:
        SinkFailureWriter(sink, str).write(broken())
    assert not isinstance(failed.value, SinkFailure)
    assert SinkFailureWriter(sink, str).write(operations(3)).upserted == 3


class Swallowing(MemorySink):
    """A clumsy guest, which logs what it meets and returns what it has done, or stops early."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        taken = []
        with contextlib.suppress(Exception):
            for operation in operations:
                taken.append(operation)
                if len(taken) == self._most:
                    break
        return super().write(taken)


def test_a_guest_that_does_not_take_everything_has_not_written_it() -> None:
    with pytest.raises(HeadraceError, match="the database is away"):
        SinkFailureWriter(Swallowing(9), str).write(broken())
    with pytest.raises(SinkFailure, match="before it took all documents"):
        SinkFailureWriter(Swallowing(2), str).write(operations(3))


def test_a_sink_that_cannot_be_opened_fails_when_it_is_written_to_until_it_can_be() -> None:
    tries = iter([HeadraceError(Kind.SINK_BUSY, "it is locked"), None])
    sink = MemorySink()

    def opened() -> MemorySink:
        if error := next(tries):
            raise error
        return sink

    writer = SinkFailureWriter(PlainWriter(opened, {}), str)
    with pytest.raises(SinkFailure, match="it is locked"):
        writer.write(operations(1))
    assert [writer.write(operations(1)).upserted for _ in range(2)] == [1, 1]
    writer.close()
    assert sink.closed
