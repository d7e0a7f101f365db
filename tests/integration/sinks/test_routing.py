"""A document that a column routes is there once, wherever it was before and in whatever order writes come."""

from __future__ import annotations

import random
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import Client, Generation, Generations, OpenSearchWriter
from headrace.sinks.opensearch.documents import copies, documents, ids, read_documents, refresh
from headrace.sinks.opensearch.routed import RoutedWriter, Shards

SHARDS = 4
BODY: dict[str, Any] = {
    "settings": {"index": {"gc_deletes": "1h", "number_of_shards": SHARDS}},
    "mappings": {"properties": {"n": {"type": "long"}}},
}
Step = tuple[str, int, str | None]
"""Id, version, and the routing; None is a delete."""


@pytest.fixture
def generation(client: Client) -> Iterator[Generation]:
    generations = Generations(client, f"t{uuid.uuid4().hex[:8]}_")
    one = generations.create("moving", "ab", BODY)
    yield one
    generations.drop(one)


def writer_of(client: Client, generation: Generation) -> RoutedWriter:
    targets = {"moving": generation.target}
    return RoutedWriter(client, OpenSearchWriter(client, targets), targets, {"moving"})


def operation(step: Step) -> DocumentOperation:
    identity, version, routing = step
    body = None if routing is None else f'{{"n": {version}}}'.encode()
    return DocumentOperation("moving", identity, version, body, routing)


def write(client: Client, generation: Generation, *steps: Step) -> WriteResult:
    with closing(writer_of(client, generation)) as writer:
        return writer.write(operation(one) for one in steps)


def held(client: Client, generation: Generation) -> dict[str, Any]:
    refresh(client, generation.index)
    assert max(Counter(ids(client, generation.index)).values(), default=0) <= 1
    return {identity: found["n"] for identity, found in documents(client, generation.index)}


def test_each_shard_has_a_routing(client: Client, generation: Generation) -> None:
    routings = Shards(client).of(generation.target)
    assert len(set(routings)) == SHARDS
    with closing(OpenSearchWriter(client, {"moving": generation.target})) as writer:
        writer.write(operation(("1", 1, routing)) for routing in routings)
    assert len(copies(client, generation.target, ["1"], routings)) == SHARDS
    assert read_documents(client, generation.target, ["1"], routings)["1"].source == b"", (
        "it is there too often"
    )


def test_an_id_that_no_document_can_have_is_refused_alone(client: Client, generation: Generation) -> None:
    """A text key may be empty; asked for with the others, it would fail the whole request."""
    impossible = ("", "x" * 513, "\ud800")
    result = write(client, generation, *((one, 1, "a") for one in ("1", *impossible)))
    assert (result.upserted, {one.id for one in result.rejected}) == (1, set(impossible))
    routings = Shards(client).of(generation.target)
    assert read_documents(client, generation.target, ["1", *impossible], routings).keys() == {"1"}
    assert read_documents(client, generation.target, impossible) == {}
    assert held(client, generation) == {"1": 1}


def test_large_documents_are_not_held_while_more_of_them_come(client: Client, generation: Generation) -> None:
    """As without routing: memory holds some requests, however large the documents are."""
    size, count = 1_000_000, 100

    def large() -> Iterator[DocumentOperation]:
        for number in range(count):
            yield DocumentOperation("moving", str(number), 1, b'{"x": "%s"}' % (b"x" * size), f"r{number}")

    tracemalloc.start()
    with closing(writer_of(client, generation)) as writer:
        assert writer.write(large()).upserted == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < count * size / 2


def test_a_document_that_moves_and_goes_leaves_nothing(client: Client, generation: Generation) -> None:
    far = [str(number) for number in range(20)]  # on all shards, some twice
    for version, routing in enumerate(far, 10):
        assert write(client, generation, ("1", version, routing)).upserted == 1
        assert held(client, generation) == {"1": version}
    late = write(client, generation, ("1", 5, "3"))
    assert (late.upserted + late.fenced, held(client, generation)) == (1, {"1": 29})
    gone = write(client, generation, ("1", 40, None), ("2", 40, "b"))
    assert (gone.deleted, gone.upserted, held(client, generation)) == (1, 1, {"2": 40})
    for routing in far:
        assert write(client, generation, ("1", 39, routing)).fenced == 1
    assert held(client, generation) == {"2": 40}
    assert write(client, generation, ("1", 41, None)).deleted == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_moves_in_any_order_repeated_and_side_by_side_leave_each_document_once(
    client: Client, generation: Generation, seed: int
) -> None:
    chance = random.Random(seed)
    history = [
        (str(chance.randrange(40)), version, chance.choice([None, *"abcdefghij"]))
        for version in range(1, 600)
    ]
    newest = {identity: (version, routing) for identity, version, routing in history}
    expected = {identity: version for identity, (version, routing) in newest.items() if routing is not None}

    replays = [history, chance.sample(history, len(history)), chance.sample(history, 300)]
    batches = []
    for replay in replays:
        batch: dict[str, Step] = {}  # as tasks get them: a document once in each
        for step in [*replay, None]:
            if step is None or step[0] in batch or len(batch) == 25:
                batches.append(list(batch.values()))
                batch = {}
            if step is not None:
                batch[step[0]] = step
    chance.shuffle(batches)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda steps: write(client, generation, *steps), batches))
    assert held(client, generation) == expected
