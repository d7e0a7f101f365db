"""`/wait` answers late, in time, or not at all, and holds nobody else up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
import urllib3

from headrace.embedded.processes import until
from headrace.status import StatusBoard, StatusServer, server, serving
from headrace.status.waiting import WaitProgress


class Held:
    """Whoever asks waits until `reach` sets a place after theirs."""

    def __init__(self) -> None:
        self.applied = 1
        self.asked: set[tuple[int | None, bool]] = set()
        self.looks = 0

    def look(self, before: WaitProgress, *, searchable: bool, waited: float) -> Future[WaitProgress]:
        assert waited >= 0
        self.asked.add((before.lsn, searchable))
        self.looks += 1
        future: Future[WaitProgress] = Future()
        lsn = before.lsn
        is_done = self.applied > 1 and self.applied >= (lsn or 0)
        future.set_result(WaitProgress(lsn, self.applied, done=is_done))
        return future

    def reach(self, applied: int) -> None:
        self.applied = applied


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def address(held: Held, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(server, "MOST_WAITERS", 3)
    with StatusServer(StatusBoard(), "127.0.0.1:0", held) as running:
        yield f"http://{running.address}"


def get(address: str) -> urllib3.BaseHTTPResponse:
    return urllib3.request("GET", address, retries=False, timeout=60)


def test_it_answers_when_it_is_there(address: str, held: Held) -> None:
    answers: list[urllib3.BaseHTTPResponse] = []
    thread = threading.Thread(target=lambda: answers.append(get(f"{address}/wait?lsn=0/10&searchable=true")))
    thread.start()
    assert until(lambda: bool(held.asked), 30)
    assert held.asked == {(16, True)}
    assert get(f"{address}/healthz").status == 200  # beside it
    held.reach(32)
    thread.join()
    [answer] = answers
    assert (answer.status, answer.json()["done"], answer.json()["applied"]) == (200, True, "0/20")
    assert answer.headers["Cache-Control"] == "no-store"


def test_it_gives_up_in_time_and_says_how_far_it_is(address: str) -> None:
    began = time.monotonic()
    answer = get(f"{address}/wait?lsn=0/10&timeout=0.2")
    assert 0.2 <= time.monotonic() - began < 30
    assert answer.status == 504
    found = answer.json()
    assert found.pop("seconds") >= 0.2
    assert found == {"done": False, "lsn": "0/10", "applied": "0/1", "behind_bytes": 15, "error": None}


def test_what_it_cannot_read_is_refused_and_so_are_too_many(address: str, held: Held) -> None:
    refused = get(f"{address}/wait?lsn=here")
    assert refused.status == 400
    assert "'here'" in refused.json()["error"]
    assert not held.asked
    assert urllib3.request("POST", f"{address}/wait").status == 405
    for number in range(3):
        threading.Thread(
            target=get, args=(f"{address}/wait?lsn=0/1{number}&timeout=60",), daemon=True
        ).start()
    assert until(lambda: len(held.asked) == 3, 30)
    full = get(f"{address}/wait")
    assert (full.status, full.headers["Retry-After"]) == (503, "1")
    held.reach(32)


def test_who_hangs_up_waits_no_more(address: str, held: Held) -> None:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"GET /wait?timeout=60 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert until(lambda: bool(held.asked), 30)

    def is_quiet() -> bool:
        looks = held.looks
        time.sleep(0.3)
        return held.looks == looks

    assert until(is_quiet, 30)


def test_a_server_with_someone_waiting_stops(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_STOP_SECONDS", 60.0)
    with StatusServer(StatusBoard(), "127.0.0.1:0", held) as running:
        thread = threading.Thread(target=_whatever, args=(f"http://{running.address}/wait",))
        thread.start()
        assert until(lambda: bool(held.asked), 30)
        began = time.monotonic()
    assert time.monotonic() - began < 30
    thread.join(timeout=30)
    assert not thread.is_alive()


def _whatever(address: str) -> None:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        get(address)
