"""A sink that is no cluster has generations in the state alone, and gets documents under the index's name."""

from collections.abc import Iterator

from headrace.model.changes import DocumentOperation
from headrace.sinks.plain import PlainWriter
from headrace.testing.memory_sink import MemorySink


def operations(count: int, index: str = "users") -> Iterator[DocumentOperation]:
    for number in range(count):
        yield DocumentOperation(index, str(number), 1, b"{}")


def test_a_sink_without_generations_gets_the_name_that_people_know() -> None:
    sink = MemorySink(reject=lambda it: "odd" if it.id == "2" else None)
    writer = PlainWriter(lambda: sink, {"users_ab_1": "users"})
    result = writer.write(operations(3, "users_ab_1"))
    assert set(sink.documents("users")) == {"0", "1"}
    assert [(one.index, one.id) for one in result.rejected] == [("users_ab_1", "2")]
    writer.close()
    assert sink.closed
