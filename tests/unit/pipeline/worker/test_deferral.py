"""Which documents a task writes and which it defers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from headrace.model.changes import CHANGES_SCHEMA, Key
from headrace.pipeline.worker.deferral import Deferral, group_keys, halves
from headrace.pipeline.worker.task import LEAST_ROWS, TaskShare, plan_tasks


class Lot:
    """Where keys are deferred."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, list[Key]]] = []

    def defer(self, index: str, chunks: Sequence[Sequence[Key]]) -> None:
        self.chunks += [(index, list(keys)) for keys in chunks]

    def keys(self, index: str) -> list[Key]:
        return [key for name, chunk in self.chunks if name == index for key in chunk]


def keys(count: int, first: int = 0) -> list[Key]:
    return [(str(number),) for number in range(first, first + count)]


def rows(count: int) -> pa.RecordBatch:
    row = {"schema": "s", "table": "t", "op": "d", "before": [("id", "1")]}
    changes = [{**row, "_commit_lsn": 5, "_commit_seq": number} for number in range(count)]
    return pa.RecordBatch.from_pylist(changes, schema=CHANGES_SCHEMA)


def test_what_readers_wait_for_is_written_before_the_rest() -> None:
    """Of a large batch, too: whoever builds or keeps a generation does not hold them up."""
    wanted = Deferral(TaskShare(), 100_000, 1, Lot().defer)
    for index in ("kept", "served", "building"):
        wanted.add(index, keys(7_000))
    writes = wanted.keys_to_write({"served", "gone"})
    assert [{index: len(found) for index, found in one.items()} for one in writes] == [
        {"served": 7_000},
        {"kept": 7_000, "building": 3_000},
        {"building": 4_000},
    ]


def test_few_documents_are_written_with_the_batch_each_once() -> None:
    lot = Lot()
    wanted = Deferral(TaskShare(), 5_000, 1, lot.defer)
    wanted.add("a", keys(1_500))
    wanted.add("b", keys(10))
    wanted.add("a", keys(100, first=1_450))
    writes = wanted.keys_to_write()
    assert [sum(map(len, one.values())) for one in writes] == [1_560]
    assert [key for one in writes for key in one.get("a", ())] == keys(1_550)
    assert lot.chunks == []


def test_too_many_of_an_index_are_deferred_and_other_indexes_are_not() -> None:
    lot = Lot()
    wanted = Deferral(TaskShare(), 5_000, 1, lot.defer)
    for first in range(0, 7_500, 500):
        wanted.add("a", keys(500, first))
    wanted.add("b", keys(3))
    assert [dict(one) for one in wanted.keys_to_write()] == [{"b": keys(3)}]
    assert sorted(lot.keys("a")) == sorted(keys(7_500))
    assert max(len(chunk) for _, chunk in lot.chunks) == 100


def test_a_batch_of_many_changes_is_no_fan_out() -> None:
    lot = Lot()
    wanted = Deferral(TaskShare(), 5_000, 1_000, lot.defer)
    wanted.add("a", keys(9_000))
    assert sum(len(one["a"]) for one in wanted.keys_to_write()) == 9_000
    assert lot.chunks == []


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shares_are_all_of_the_documents_and_none_twice(count: int) -> None:
    every: list[Key] = [*keys(5_000), ("a", "b"), ("ab", ""), ("ü",)]
    found = [key for number in range(count) for key in TaskShare(number, count).own(every)]
    assert sorted(found) == sorted(every)
    assert all(len(TaskShare(number, count).own(every)) > 4_000 // count for number in range(count))


@pytest.mark.parametrize(("count", "tasks"), [(0, 1), (LEAST_ROWS - 1, 1), (LEAST_ROWS, 3)])
def test_tasks_of_a_batch_know_their_share(count: int, tasks: int) -> None:
    told = plan_tasks([rows(count)] if count else [], 800, max_tasks=3)
    assert [one.share for one in told] == [TaskShare(number, tasks) for number in range(tasks)]
    assert {(one.version, one.rows.num_rows) for one in told} == {(800, count)}


def test_a_write_is_halved_until_it_is_one_document() -> None:
    whole = group_keys([("a", key) for key in keys(900)] + [("b", key) for key in keys(101)])
    one, other = halves(whole)
    assert (len(one["a"]), len(other["a"]), len(other["b"])) == (500, 400, 101)
    assert halves({"a": [("1",)]}) == [{"a": [("1",)]}]
