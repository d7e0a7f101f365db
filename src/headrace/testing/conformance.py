"""Tests that every sink must pass, Headrace's own and yours, as classes to inherit.

A test class that inherits one of the two classes and has a fixture `sink` runs all of its tests:

    class TestOurs(DocumentSinkConformance):
        @pytest.fixture
        def sink(self):
            with Ours() as sink:
                yield sink

The sink takes documents of the index `users` with the fields `n`, an integer, and `s`, a text; one that keeps
documents refuses any other field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult

__all__ = ["INDEX", "DocumentSinkConformance", "SinkConformance", "SinkUnderTest", "delete", "upsert"]

INDEX = "users"
_ODD_IDS = (
    *("ä", "日本語", "😀", 'a"b', "a\\b", "a/b?c#d%20", " ", "a\nb", "\x01", "_x", "é" * 256, "-1", "a:b"),
)
_MANY = 5_000


class SinkUnderTest(Protocol):
    """A sink's writer, and the documents that a reader sees."""

    @property
    def writer(self) -> DocumentWriter:
        """The writer, the same at each access."""
        ...

    def documents(self) -> Mapping[str, Any]:
        """Return every document by its id, parsed, as a reader finds it now."""
        ...


def upsert(identity: str, version: int, **content: Any) -> DocumentOperation:
    """Return an operation that writes a document."""
    return DocumentOperation(INDEX, identity, version, json.dumps(content).encode())


def delete(identity: str, version: int) -> DocumentOperation:
    """Return an operation that deletes a document."""
    return DocumentOperation(INDEX, identity, version, None)


def counts(result: WriteResult) -> tuple[int, int, int, int]:
    """Return a result's counts: upserted, deleted, fenced, rejected."""
    return result.upserted, result.deleted, result.fenced, len(result.rejected)


class SinkConformance:
    """Tests for every sink: all operations arrive, in order, and each is counted once."""

    def test_nothing_in_nothing_out(self, sink: SinkUnderTest) -> None:
        """A batch without documents is written, too."""
        assert counts(sink.writer.write([])) == (0, 0, 0, 0)
        assert sink.documents() == {}

    def test_each_operation_is_counted_once(self, sink: SinkUnderTest) -> None:
        """The counts are right for one write and for several."""
        assert counts(sink.writer.write([upsert("1", 1, n=1), upsert("2", 1, n=2)])) == (2, 0, 0, 0)
        assert counts(sink.writer.write([delete("1", 2), upsert("3", 2, n=3)])) == (1, 1, 0, 0)
        assert sink.documents() == {"2": {"n": 2}, "3": {"n": 3}}

    def test_operations_on_one_id_in_one_write_end_at_the_newest(self, sink: SinkUnderTest) -> None:
        """The order holds although the writer may send requests in parallel."""
        sink.writer.write([upsert("1", 1, n=1), delete("1", 2), upsert("1", 3, n=3)])
        assert sink.documents() == {"1": {"n": 3}}

    def test_the_same_operation_again_changes_nothing(self, sink: SinkUnderTest) -> None:
        """Delivery is at least once: an interrupted batch is repeated."""
        for _ in range(2):
            assert counts(sink.writer.write([upsert("1", 20, n=2), delete("2", 20)])) == (1, 1, 0, 0)
        assert sink.documents() == {"1": {"n": 2}}

    def test_a_long_run_is_written_whole_and_taken_bit_by_bit(self, sink: SinkUnderTest) -> None:
        """Memory is bounded by the sink's requests: operations may not be collected first."""
        taken = []

        def operations() -> Iterator[DocumentOperation]:
            for number in range(_MANY):
                taken.append(number)
                yield upsert(str(number), 1, n=number, s="x" * 200)

        assert counts(sink.writer.write(operations())) == (_MANY, 0, 0, 0)
        found = sink.documents()
        assert len(found) == len(taken) == _MANY
        assert found["4711"] == {"n": 4711, "s": "x" * 200}

    def test_odd_ids_and_texts_survive(self, sink: SinkUnderTest) -> None:
        """Keys are arbitrary texts of the user."""
        result = sink.writer.write(upsert(identity, 1, s=identity) for identity in _ODD_IDS)
        assert result.rejected == ()
        assert sink.documents() == {identity: {"s": identity} for identity in _ODD_IDS}

    def test_line_feeds_between_tokens_are_no_end(self, sink: SinkUnderTest) -> None:
        """A column of type json keeps its white space."""
        sink.writer.write([DocumentOperation(INDEX, "1", 1, b'{\n"n":\n1}')])
        assert sink.documents() == {"1": {"n": 1}}

    def test_a_writer_may_be_closed_twice(self, sink: SinkUnderTest) -> None:
        """The second close does nothing."""
        sink.writer.write([upsert("1", 1, n=1)])
        sink.writer.close()
        sink.writer.close()


class DocumentSinkConformance(SinkConformance):
    """Tests for sinks that keep documents: older versions never win, and a rejected one harms no other."""

    def test_an_older_version_is_fenced_and_counts_as_done(self, sink: SinkUnderTest) -> None:
        """A backfill writes documents that are older than those of the stream."""
        sink.writer.write([upsert("1", 20, n=2)])
        assert counts(sink.writer.write([upsert("1", 10, n=1)])) == (0, 0, 1, 0)
        assert sink.documents() == {"1": {"n": 2}}

    def test_an_older_upsert_does_not_bring_a_deleted_document_back(self, sink: SinkUnderTest) -> None:
        """A delete leaves a tombstone."""
        sink.writer.write([upsert("1", 10, n=1)])
        assert counts(sink.writer.write([delete("1", 30)])) == (0, 1, 0, 0)
        assert counts(sink.writer.write([upsert("1", 20, n=2)])) == (0, 0, 1, 0)
        assert sink.documents() == {}

    def test_deleting_what_never_was_succeeds_and_fences(self, sink: SinkUnderTest) -> None:
        """The row was deleted before the backfill wrote its document."""
        assert counts(sink.writer.write([delete("9", 30)])) == (0, 1, 0, 0)
        assert counts(sink.writer.write([upsert("9", 20, n=2)])) == (0, 0, 1, 0)

    def test_a_newer_upsert_comes_back_after_a_delete(self, sink: SinkUnderTest) -> None:
        """A row with the same key can be inserted again."""
        sink.writer.write([delete("1", 30)])
        sink.writer.write([upsert("1", 31, n=3)])
        assert sink.documents() == {"1": {"n": 3}}

    def test_a_rejected_document_never_fails_its_neighbours(self, sink: SinkUnderTest) -> None:
        """Each rejected document is returned with a reason."""
        result = sink.writer.write(
            [upsert("1", 1, n=1), upsert("2", 1, wrong=1), upsert("", 1, n=3), upsert("4", 1, n=4)]
        )
        assert counts(result) == (2, 0, 0, 2)
        assert {(rejection.index, rejection.id): bool(rejection.reason) for rejection in result.rejected} == {
            (INDEX, "2"): True,
            (INDEX, ""): True,
        }
        assert sink.documents() == {"1": {"n": 1}, "4": {"n": 4}}

    def test_a_delete_is_never_rejected_for_its_id(self, sink: SinkUnderTest) -> None:
        """There is no document under an impossible id, so the delete succeeds."""
        assert counts(sink.writer.write([delete("", 1), delete("1", 1)])) == (0, 2, 0, 0)

    def test_the_highest_version_fits(self, sink: SinkUnderTest) -> None:
        """A version is a position in PostgreSQL's log, 64 bits wide."""
        assert counts(sink.writer.write([upsert("1", 2**63 - 1, n=1)])) == (1, 0, 0, 0)
