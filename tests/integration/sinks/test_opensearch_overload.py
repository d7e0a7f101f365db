"""A cluster that is overloaded, full, slow or silent: nothing is lost, and the run's status says so."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind, retrying
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import (
    Client,
    Endpoint,
    Generation,
    Generations,
    OpenSearchWriter,
    WriterOptions,
)
from headrace.sinks.opensearch.documents import documents, refresh
from headrace.status.sinks import ReportsPort, SinkReports
from support.http_proxy import Answer, Cut, HttpProxy, Request, Spoil

BODY: dict[str, Any] = {
    "settings": {"index": {"gc_deletes": "1h"}},
    "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}}},
}


class Cluster:
    """One generation in a cluster that a proxy stands before."""

    def __init__(self, url: str) -> None:
        self.direct = Client(Endpoint((url,)))
        self._generations = Generations(self.direct, f"o{uuid.uuid4().hex[:8]}_")
        self.generation: Generation = self._generations.create("users", "ab", BODY)
        self.front = HttpProxy(url)

    def spoil(self, one: Spoil) -> None:
        """Spoil bulk requests only."""
        self.front.spoil = lambda request: one(request) if request.target.startswith("/_bulk") else None

    def write(
        self, operations: list[DocumentOperation], *, timeout: float = 5.0, **options: Any
    ) -> WriteResult:
        """As a worker does: what got no answer is done anew, for as long as it takes."""
        client = Client(Endpoint((self.front.url,), timeout=timeout))
        writer = OpenSearchWriter(client, {"users": self.generation.target}, WriterOptions(**options))
        try:
            for attempt in retrying():
                with attempt:
                    return writer.write(operations)
        finally:
            writer.close()
            client.close()
        raise AssertionError

    def bulks(self) -> list[Request]:
        return [one for one in self.front.requests if one.target.startswith("/_bulk")]

    def held(self) -> dict[str, Any]:
        refresh(self.direct, self.generation.index)
        return dict(documents(self.direct, self.generation.index))

    def close(self) -> None:
        self._generations.drop(self.generation)
        self.direct.close()


@pytest.fixture
def cluster(opensearch: EmbeddedOpenSearch) -> Iterator[Cluster]:
    one = Cluster(opensearch.url)
    with one.front:
        yield one
    one.close()


def users(count: int, version: int = 1) -> list[DocumentOperation]:
    return [DocumentOperation("users", str(n), version, b'{"n":%d}' % n) for n in range(count)]


def in_turns(*faults: Answer | Cut | None) -> Callable[[Request], Answer | Cut | None]:
    turns = itertools.cycle(faults)
    return lambda _: next(turns)


@pytest.mark.parametrize(
    "fault",
    [Answer(429), Answer(503), Answer(502), Cut(), Cut(bytes=20), Cut(unheard=True)],
    ids=["busy", "away", "gateway", "no-answer", "cut", "lost"],
)
def test_half_of_all_bulks_fail_and_every_document_arrives_once(
    cluster: Cluster, fault: Answer | Cut
) -> None:
    cluster.spoil(in_turns(fault, None))
    every = users(300)
    for at in range(0, 300, 100):
        cluster.write(every[at : at + 100], senders=1)
    assert cluster.held() == {str(n): {"n": n} for n in range(300)}


def test_what_was_read_long_ago_is_not_sent_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something always goes forward, so the patience of a single request never ends."""
    monkeypatch.setattr("headrace.sinks.opensearch.writer._STALE_SECONDS", 0.0)
    client = Client(Endpoint((cluster.front.url,)))
    writer = OpenSearchWriter(client, {"users": cluster.generation.target})
    cluster.spoil(lambda _: Answer(413))
    with pytest.raises(HeadraceError, match="read again") as caught:
        writer.write(users(8))
    assert caught.value.kind is Kind.SINK_BUSY
    writer.close()
    client.close()


def test_what_a_suspended_process_had_read_is_not_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspensions = 0
    monkeypatch.setattr("headrace.sinks.age._now", lambda: 3600.0 * suspensions)
    client = Client(Endpoint((cluster.front.url,)))
    writer = OpenSearchWriter(client, {"users": cluster.generation.target}, WriterOptions(max_count=2))

    def suspended(at: int) -> Iterator[DocumentOperation]:
        nonlocal suspensions
        for number, user in enumerate(users(4)):
            if number == at:
                assert until(lambda: at < 3 or bool(cluster.bulks()), 20)  # the first two are on their way
                suspensions += 1
            yield user

    for at in range(4):
        assert cluster.held() == {}
        with pytest.raises(HeadraceError, match="read again") as caught:
            writer.write(suspended(at))
        assert caught.value.kind is Kind.SINK_BUSY
    assert list(cluster.held()) == ["0", "1"], "the request before the last pause"
    writer.close()
    client.close()


def test_a_slow_cluster_is_waited_for(cluster: Cluster) -> None:
    def late(_: Request) -> None:
        time.sleep(0.4)

    cluster.spoil(late)
    assert cluster.write(users(200), max_count=100).upserted == 200


def test_a_cluster_that_never_answers_is_asked_again_until_it_does(cluster: Cluster) -> None:
    silent = threading.Event()

    def hang(_: Request) -> Answer | Cut | None:
        return Cut(unheard=True) if silent.wait(10) else None

    def go_on() -> None:
        cluster.front.heal()
        silent.set()

    cluster.spoil(hang)
    threading.Timer(0.8, go_on).start()
    assert cluster.write(users(10), timeout=0.3).upserted == 10


def test_bulks_are_halved_by_a_cluster_that_takes_only_small_ones_and_grow_back(cluster: Cluster) -> None:
    sizes: list[int] = []

    def small_only(request: Request) -> Answer | None:
        sizes.append(len(request.body))
        return Answer(429) if len(request.body) > 200_000 else None

    cluster.spoil(small_only)
    wide = [DocumentOperation("users", str(n), 1, b'{"n":1%s}' % (b" " * 9_900)) for n in range(150)]
    assert cluster.write(wide, max_bytes=1_000_000, senders=1).upserted == 150
    refused = [at for at, size in enumerate(sizes) if size > 200_000]
    after = sizes[refused[0] + 1 :]
    assert max(after[2:6]) < 300_000, "halved"
    assert any(later > before for before, later in itertools.pairwise(after)), "grown back"


def test_what_the_writer_waits_for_is_heard_and_ends(cluster: Cluster) -> None:
    reports = SinkReports()
    cluster.spoil(lambda _: Answer(429, b'{"error":{"type":"rejected","reason":"queue full"}}'))
    with ReportsPort(reports) as port:
        writing = threading.Thread(
            target=cluster.write, args=(users(10),), kwargs={"report": port.to("main")}
        )
        writing.start()
        try:
            end = time.monotonic() + 20
            while not any(one.error for one in reports.view()):
                assert time.monotonic() < end
                time.sleep(0.05)
            [seen] = reports.view()
        finally:
            cluster.front.heal()
            writing.join(30)
        assert seen.error is not None
        assert (seen.name, seen.error.kind) == ("main", Kind.SINK_BUSY)
        assert "queue full" in seen.error.cause
        assert seen.retries > 0
        assert until(lambda: [(one.error, one.in_flight) for one in reports.view()] == [(None, 0)], 20)


def test_a_full_disk_makes_an_index_read_only_and_it_is_written_when_there_is_room(cluster: Cluster) -> None:
    """The block that the flood stage sets, with the reason in the error; the cluster takes it away itself."""
    index = cluster.generation.index
    block = "index.blocks.read_only_allow_delete"
    cluster.direct.call("PUT", f"/{index}/_settings", {block: True})
    with pytest.raises(HeadraceError, match="read-only") as caught:
        OpenSearchWriter(cluster.direct, {"users": cluster.generation.target}).write(users(1))
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["users"]))
    cluster.direct.call("PUT", f"/{index}/_settings", {block: None})
    assert cluster.write(users(50)).rejected == ()
    assert len(cluster.held()) == 50
