"""Several sinks get the same, and one that fails harms no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.errors import HeadraceError, Kind
from headrace.model import DocumentOperation
from headrace.sinks.contract import DocumentWriter, WriteResult
from headrace.sinks.several import SeveralWriters
from headrace.testing.memory_sink import MemorySink


def operations(count: int) -> Iterator[DocumentOperation]:
    for number in range(count):
        yield DocumentOperation("users", str(number), 1, b"{}")


class Failing(DocumentWriter):
    """Takes some portions, then none."""

    def __init__(self, takes: int) -> None:
        self._takes = takes
        self.asked = 0

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        self.asked += 1
        if self.asked > self._takes:
            raise HeadraceError(Kind.SINK_BUSY, "full")
        return WriteResult(upserted=len(list(operations)))

    def close(self) -> None:
        self.asked = -1


def test_each_operation_reaches_each_sink() -> None:
    one, other = MemorySink(), MemorySink(reject=lambda it: "odd" if it.id == "7" else None)
    several = SeveralWriters({"one": one, "other": other})
    shares = several.write(operations(2_500))
    assert (shares["one"].result.upserted, shares["other"].result.upserted) == (2_500, 2_499)
    assert [it.id for it in shares["other"].result.rejected] == ["7"]
    assert len(one.documents("users")) == 2_500
    assert [it.id for it in one.history] == [str(number) for number in range(2_500)]
    several.close()
    several.close()
    assert one.closed
    assert other.closed


def test_a_sink_that_fails_gets_no_more_and_the_others_get_all() -> None:
    healthy, ill = MemorySink(), Failing(takes=1)
    several = SeveralWriters({"healthy": healthy, "ill": ill})
    shares = several.write(operations(3_500))
    assert (shares["healthy"].result.upserted, shares["healthy"].failure) == (3_500, None)
    assert shares["ill"].failure is not None
    assert shares["ill"].failure.kind is Kind.SINK_BUSY
    assert (shares["ill"].result.upserted, shares["ill"].untaken, ill.asked) == (1_000, 2_500, 2)
    shares = several.write(operations(1))
    assert shares["ill"].failure is not None, "it is asked again by the next run"
    assert ill.asked == 3
    several.close()


def test_without_operations_nothing_is_written() -> None:
    several = SeveralWriters({"one": MemorySink()})
    assert several.write([])["one"].result == WriteResult()
    several.close()
