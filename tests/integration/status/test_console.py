"""The console over HTTP: what it sends, to whom, and what it does not let a client do."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from html.parser import HTMLParser
from typing import Any

import psutil
import pytest
import urllib3

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.state import Counters
from headrace.status import Phase, StatusBoard, StatusServer, connections, serving
from headrace.status.console import feed, page, routes
from headrace.status.console.explanation import Explanation
from support.console_states import FakeExplains, board_in


@pytest.fixture
def board() -> StatusBoard:
    return board_in("live")


@pytest.fixture
def server(board: StatusBoard) -> Iterator[StatusServer]:
    with StatusServer(board, "127.0.0.1:0", explains=FakeExplains()) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=60, maxsize=1) as manager:
        yield manager


def get(pool: urllib3.PoolManager, server: StatusServer, path: str = "/") -> urllib3.BaseHTTPResponse:
    return pool.request("GET", f"http://{server.address}{path}", headers={"Connection": "close"})


class Watcher:
    """A client of the events."""

    def __init__(self, server: StatusServer) -> None:
        host, port = server.address.split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=60)
        self.connection.request("GET", "/console/events")
        self.answer = self.connection.getresponse()

    def message(self) -> dict[str, object]:
        while line := self.answer.readline():
            if line.startswith(b"data: "):
                return dict(json.loads(line.removeprefix(b"data: ")))
        raise EOFError

    def close(self) -> None:
        self.connection.close()


def test_the_page_answers_from_top_to_bottom(server: StatusServer, pool: urllib3.PoolManager) -> None:
    answer = get(pool, server)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.data.decode()))
    order = ["live", "since", "Why", "To do", "captured", "resolved", "assembled", "written", "opensearch"]
    order += ["Lag", "advancing", "backlog", "Slot", "retained", "safe_wal_size", "wal_status", "room"]
    order += ["read by", "Indexes", "1,204,331", "Tables", "replica identity", "published", "The last day"]
    places = [text.find(word) for word in order]
    assert -1 not in places, dict(zip(order, places, strict=True))


def test_nothing_is_loaded_from_elsewhere_and_no_script_stands_in_the_page(
    server: StatusServer, pool: urllib3.PoolManager
) -> None:
    answer = get(pool, server)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[kind] for kind in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    page = answer.data.decode()
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"\son\w+=|\sstyle=", page) == []
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert "//" not in address
        assert get(pool, server, f"/{address}").status in (200, 503)


def test_files_are_kept_by_browsers_because_their_address_changes_with_them(
    server: StatusServer, pool: urllib3.PoolManager
) -> None:
    page = get(pool, server).data.decode()
    [address] = re.findall(r'src="(console/console\.js\?[0-9a-f]{12})"', page)
    answer = get(pool, server, f"/{address}")
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


class _Structure(HTMLParser):
    """The tags and attributes of a page, without its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}


@pytest.mark.parametrize("path", ["/", "/?document=%3Cscript%3Ealert(1)%3C/script%3E%22%20onfocus=x"])
def test_hostile_names_add_no_element_and_no_attribute(path: str, pool: urllib3.PoolManager) -> None:
    with StatusServer(board_in("hostile"), "127.0.0.1:0", explains=FakeExplains()) as server:
        page = get(pool, server, path).data.decode()
    found = _Structure(page).found
    assert ("img", "") not in found
    assert {tag for tag, name in found if name.startswith("on")} == set()
    assert "<script>" not in page
    assert page.count("<script") == 2


def test_events_bring_what_has_changed_and_only_that(board: StatusBoard, server: StatusServer) -> None:
    watcher = Watcher(server)
    first = watcher.message()
    assert set(first["parts"]) == {"state", "notices", "way", "lag", "slot", "indexes", "tables", "events"}  # type: ignore[call-overload]
    board.record_error(HeadraceError(Kind.CONNECTION, "no connection"))
    while "events" not in (parts := watcher.message()["parts"]):  # type: ignore[operator]
        pass
    assert "degraded" in parts["state"]  # type: ignore[index]
    assert "indexes" not in parts  # type: ignore[operator]
    watcher.close()


def test_the_last_event_says_that_the_run_has_ended(
    board: StatusBoard, server: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_STOP_SECONDS", 60.0)
    watcher = Watcher(server)
    assert watcher.message()["ended"] is False
    board.ended(HeadraceError(Kind.SLOT_LOST, "the slot is lost", "Begin anew."))
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 30
    messages = [watcher.message()]
    while not messages[-1]["ended"]:
        messages.append(watcher.message())
    with pytest.raises(EOFError):
        watcher.message()
    assert messages[-1]["ended"] is True
    assert "Begin anew." in messages[-1]["parts"]["state"]  # type: ignore[index]


def test_where_too_many_watch_the_oldest_comes_back_later(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert feed.Feed.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(feed.Feed.__init__.__kwdefaults__, "most", 2)
    with StatusServer(board, "127.0.0.1:0") as server, ExitStack() as held:
        watchers = [Watcher(server) for _ in range(3)]
        for watcher in watchers:
            held.callback(watcher.close)
            watcher.message()
        while (message := watchers[0].message())["next"] != 10:
            pass  # a look in between
        assert "state" in message["parts"]  # type: ignore[operator]
        with pytest.raises(EOFError):
            watchers[0].message()
        assert watchers[1].message()["next"] == watchers[2].message()["next"] == 1


def test_a_thousand_slow_clients_hold_up_nobody(
    board: StatusBoard, server: StatusServer, pool: urllib3.PoolManager
) -> None:
    """Some send half a request, some ask for events or the page and never read them."""
    host, port = server.address.split(":")
    requests = [
        b"GET / HT",
        b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    before = psutil.Process().num_fds()
    with ExitStack() as held:
        for number in range(1000):
            client = held.enter_context(socket.create_connection((host, int(port))))
            with suppress(OSError):  # it was cut off already
                client.send(requests[number % 3])
            if number % 100 == 99:
                began = time.monotonic()
                assert get(pool, server, "/healthz").status == 200
                assert get(pool, server).status == 200
                assert time.monotonic() - began < 30
        assert psutil.Process().num_fds() - before - 1000 <= connections.MOST_CONNECTIONS + 20
        began = time.monotonic()
        for number in range(1000):  # what the pipeline does
            board.set_counts(Counters(changes=number + board.view().counts.batches))
        assert time.monotonic() - began < 30
        watcher = Watcher(server)
        held.callback(watcher.close)
        for _ in range(3):
            began = time.monotonic()
            watcher.message()
            assert time.monotonic() - began < 30


def test_a_client_that_does_not_finish_its_request_is_cut_off(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.3)
    with StatusServer(board, "127.0.0.1:0") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.send(b"GET / HTTP/1.1\r\n")
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_a_client_that_takes_no_answer_is_cut_off(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.3)
    with StatusServer(board, "127.0.0.1:0") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.send(b"GET /console/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
            assert until(lambda: not server._server.server_state.connections, 30)


def test_while_nobody_looks_it_costs_less_than_a_hundredth_of_a_core(board: StatusBoard) -> None:
    others = processor_times().keys()  # of threads that other tests left behind
    with StatusServer(board, "127.0.0.1:0"):
        time.sleep(1)
        before = processor_times()
        time.sleep(4)
        after = processor_times()
    own = after.keys() - others
    assert own
    assert sum(after[thread] - before.get(thread, 0.0) for thread in own) / 4 < 0.01


def processor_times() -> dict[int, float]:
    """The processor time (s) of each thread of this process, by its id."""
    return {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}


def test_the_curve_is_what_was_seen(server: StatusServer, pool: urllib3.PoolManager) -> None:
    curve = json.loads(get(pool, server, "/console/lag").data)
    assert set(curve) == {"time", "seconds", "bytes"}
    assert curve["bytes"][-1] == 240_000


class Slow:
    """Never answers until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def explain(self, index: str, id_: str) -> Explanation:
        self.let_go.wait(60)
        raise HeadraceError(Kind.USAGE, f"no index {index}", "Correct it.")


def test_questions_that_take_long_hold_up_only_questions(
    board: StatusBoard, pool: urllib3.PoolManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_ANSWER_SECONDS", 0.5)
    slow = Slow()
    with StatusServer(board, "127.0.0.1:0", explains=slow) as server:
        assert b"no answer within" in get(pool, server, "/?document=users/1").data
        began = time.monotonic()
        assert get(pool, server).status == 200
        assert time.monotonic() - began < 30
        slow.let_go.set()
        monkeypatch.setattr(routes, "_ANSWER_SECONDS", 60.0)
        assert b"Correct it." in get(pool, server, "/?document=users/1").data


def test_what_names_no_document_is_answered_with_how_to_name_one(
    server: StatusServer, pool: urllib3.PoolManager
) -> None:
    assert b"INDEX/ID" in get(pool, server, "/?document=users").data
    assert b"INDEX/ID" in get(pool, server, "/?document=/42").data


def test_an_id_may_hold_slashes(server: StatusServer, pool: urllib3.PoolManager) -> None:
    assert b"users has no document a/b c" in get(pool, server, "/?document=users/a/b%20c").data


def test_the_page_shows_a_new_run_too(pool: urllib3.PoolManager) -> None:
    board = StatusBoard(["users"])
    with StatusServer(board, "127.0.0.1:0") as server:
        assert b"starting" in get(pool, server).data
        board.enter(Phase.BACKFILLING)
        time.sleep(1.1)
        assert b"0 of 1" in (page := get(pool, server).data) or b"1 of 1" in page


def test_a_bug_in_the_page_is_logged_once_and_does_not_end_it(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, broken = page.make_page, threading.Event()

    def make_page(*arguments: Any) -> page.Page:
        if broken.is_set():
            raise ZeroDivisionError
        return real(*arguments)

    monkeypatch.setattr(feed, "make_page", make_page)
    with StatusServer(board, "127.0.0.1:0") as server:
        watcher = Watcher(server)
        watcher.message()
        broken.set()
        time.sleep(2.5)
        broken.clear()
        assert watcher.message()["parts"] is not None
        watcher.close()
    assert len(caplog.records) == 1
