import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import HeadraceError, Kind
from headrace.status import Event, IndexPhase, StatusBoard, StatusServer


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard(["users"])


@pytest.fixture
def server(board: StatusBoard) -> Iterator[StatusServer]:
    with StatusServer(board, "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=5) as pool:
        yield pool


def get(http: urllib3.PoolManager, server: StatusServer, path: str) -> urllib3.BaseHTTPResponse:
    return http.request("GET", f"http://{server.address}{path}")


def test_port_zero_takes_a_free_one_and_says_which(server: StatusServer) -> None:
    host, port = server.address.split(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


def test_health_says_that_the_process_works_whatever_the_run_does(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    assert get(http, server, "/healthz").status == 200
    board.apply_event(Event.STOPPED)
    assert get(http, server, "/healthz").status == 200


def test_readiness_follows_the_run_and_gives_its_reason(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    answer = get(http, server, "/readyz")
    assert (answer.status, answer.data) == (503, b"starting\n")
    board.apply_event(Event.FOLLOWING)
    answer = get(http, server, "/readyz")
    assert (answer.status, answer.data) == (503, b"not backfilled: users\n")
    board.index("users", phase=IndexPhase.LIVE)
    assert get(http, server, "/readyz").status == 200
    board.record_error(HeadraceError(Kind.CONNECTION, "no connection"))
    answer = get(http, server, "/readyz")
    assert (answer.status, answer.data) == (503, b"degraded: [HEADRACE_CONNECTION] no connection\n")


def test_status_is_the_board_as_json(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    board.apply_event(Event.BACKFILLING)
    answer = get(http, server, "/status")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert json.loads(answer.data) == board.snapshot()


def test_metrics_are_in_the_format_that_prometheus_reads(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    board.apply_event(Event.BACKFILLING)
    answer = get(http, server, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.data.decode())}
    assert {"headrace_state", "headrace_changes", "headrace_index_backfilled"} <= families.keys()
    assert families["headrace_slot_unconfirmed_bytes"].samples == []


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/../server.py",
        "/console/page.html",
        "/indexes",
        "/reindex",
        "/docs",
        "/status/",
    ],
)
def test_there_is_nothing_else_to_find(path: str, server: StatusServer, http: urllib3.PoolManager) -> None:
    answer = http.request("GET", f"http://{server.address}{path}", redirect=False)
    assert answer.status in (307, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(method: str, server: StatusServer, http: urllib3.PoolManager) -> None:
    assert http.request(method, f"http://{server.address}/status").status == 405


def test_a_taken_port_is_one_clear_error(board: StatusBoard, server: StatusServer) -> None:
    with pytest.raises(HeadraceError, match=server.address) as caught:
        StatusServer(board, server.address).start()
    assert caught.value.kind is Kind.PORT_IN_USE


@pytest.mark.parametrize(
    "address", ["", "9464", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "a b:1", ":1"]
)
def test_what_is_no_address_is_refused_before_anything_listens(address: str, board: StatusBoard) -> None:
    with pytest.raises(HeadraceError) as caught:
        StatusServer(board, address)
    assert caught.value.kind is Kind.USAGE


def test_an_address_of_another_machine_is_refused(board: StatusBoard) -> None:
    with pytest.raises(HeadraceError, match=r"192\.0\.2\.1") as caught:
        StatusServer(board, "192.0.2.1:0").start()
    assert caught.value.kind is Kind.USAGE


def test_only_the_given_interface_listens(server: StatusServer) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)


def test_a_stop_is_quick_with_open_connections_and_gives_the_port_back(board: StatusBoard) -> None:
    server = StatusServer(board, "127.0.0.1:0")
    server.start()
    host, port = server.address.split(":")
    with urllib3.HTTPConnectionPool(host, int(port), retries=False, timeout=5) as kept:
        assert kept.request("GET", "/healthz").status == 200
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace status"]
    with StatusServer(board, f"{host}:{port}") as again:
        assert again.address == f"{host}:{port}"


def test_requests_are_answered_while_the_run_is_busy(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            board.index("users", rows=1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(get(http, server, "/status").status == 200 for _ in range(20))
    finally:
        done.set()
        writer.join()


def test_nothing_is_printed(
    server: StatusServer, http: urllib3.PoolManager, capfd: pytest.CaptureFixture[str]
) -> None:
    get(http, server, "/status")
    get(http, server, "/nothing")
    assert capfd.readouterr() == ("", "")
