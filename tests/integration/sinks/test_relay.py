"""What workers write is printed by the run, once and in order."""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.stdout.relay import Relay, RelayWriter
from headrace.sinks.stdout.writer import StdoutWriter


def operations(first: int, count: int) -> list[DocumentOperation]:
    return [
        DocumentOperation("users", str(n), 7, None if n % 3 == 0 else f'{{"n": {n}}}\n'.encode())
        for n in range(first, first + count)
    ]


def test_many_workers_print_whole_lines_in_one_sequence() -> None:
    stream = io.StringIO()

    def work(first: int) -> WriteResult:
        writer = RelayWriter(**relay.options())
        try:
            return writer.write(operations(first, 1_300)) + writer.write(operations(first + 1_300, 1))
        finally:
            writer.close()

    with Relay(StdoutWriter(stream, sink="printed")) as relay, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(work, range(0, 40_000, 10_000)))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["seq"] for one in lines] == list(range(1, 4 * 1_301 + 1))
    assert sum(one.upserted for one in results) == sum(one["op"] == "upsert" for one in lines)
    assert sum(one.upserted + one.deleted for one in results) == 4 * 1_301
    documents = {one["id"]: one.get("document") for one in lines}
    assert (documents["10001"], documents["10002"]) == ({"n": 10001}, None)


class Broken(DocumentWriter):
    """A pipe that nobody reads any more."""

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        raise BrokenPipeError("nobody reads")

    def close(self) -> None:
        """Nothing is held."""


def test_what_cannot_be_printed_is_an_error_of_the_sink() -> None:
    with Relay(Broken()) as relay:
        writer = RelayWriter(**relay.options())
        with pytest.raises(HeadraceError, match="nobody reads") as failed:
            writer.write(operations(0, 1))
        assert failed.value.kind is Kind.SINK_BUSY
        writer.close()
        stranger = RelayWriter(**{**relay.options(), "token": "guessed"})
        with pytest.raises(HeadraceError) as refused:
            stranger.write(operations(0, 1))
        assert refused.value.kind is Kind.SINK_UNREACHABLE
        stranger.close()
    with pytest.raises(HeadraceError) as gone:
        writer.write(operations(0, 1))
    assert gone.value.kind is Kind.SINK_UNREACHABLE


def test_a_stranger_that_sends_no_end_of_its_token_is_cut_off() -> None:
    with Relay(Broken()) as relay:
        address = relay.options()["host"], relay.options()["port"]
        with socket.create_connection(address, 5) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(b"x" * 1_000)
            assert stranger.recv(1) == b""
