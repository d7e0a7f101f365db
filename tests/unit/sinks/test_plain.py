"""A sink that is no cluster has generations in the state alone, and gets documents under the index's name."""

from collections.abc import Iterable, Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
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


def test_a_sink_without_generations_gets_the_name_that_people_know() -> None:
    sink = MemorySink(reject=lambda it: "odd" if it.id == "2" else None)
    writer = PlainWriter(lambda: sink, {"users_ab_1": "users"})
    result = writer.write(operations(3, "users_ab_1"))
    assert set(sink.documents("users")) == {"0", "1"}
    assert [(one.index, one.id) for one in result.rejected] == [("users_ab_1", "2")]
    writer.close()
    assert sink.closed


def test_what_a_guest_raises_is_an_error_with_a_remedy_and_what_it_is_given_stays_what_it_is() -> None:
    with pytest.raises(HeadraceError, match="a sink failed: ZeroDivisionError") as failed:
        PlainWriter(lambda: Failing(ZeroDivisionError()), {}).write(operations(1))
    assert failed.value.kind is Kind.SINK_BUSY
    with pytest.raises(HeadraceError, match="the database is away"):
        PlainWriter(MemorySink, {}).write(broken())
