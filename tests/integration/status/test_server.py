import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import HeadraceError, Kind
from headrace.status import IndexPhase, Phase, StatusBoard, StatusServer, serving


@pytest.fixture
def board() -> StatusBoard:
    return StatusBoard(["users"])


@pytest.fixture
def server(board: StatusBoard) -> Iterator[StatusServer]:
    with StatusServer(board, "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=60) as pool:
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
    board.enter(Phase.STOPPED)
    assert get(http, server, "/healthz").status == 200


def test_readiness_follows_the_run_and_gives_its_reason(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    answer = get(http, server, "/readyz")
    assert (answer.status, answer.data) == (503, b"starting\n")
    board.enter(Phase.LIVE)
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
    board.enter(Phase.BACKFILLING)
    answer = get(http, server, "/status")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert json.loads(answer.data) == board.snapshot()


def test_metrics_are_in_the_format_that_prometheus_reads(
    board: StatusBoard, server: StatusServer, http: urllib3.PoolManager
) -> None:
    board.enter(Phase.BACKFILLING)
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


ASKED = [
    "/",
    "/?document=users/1",
    "/status",
    "/wait?searchable=true&timeout=0",
    "/console/lag",
    "/console/events",
]
PROBED = ["/healthz", "/readyz", "/metrics"]


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil"]
)
def test_a_page_that_lets_its_name_lead_here_is_told_nothing(
    path: str, host: str, server: StatusServer, http: urllib3.PoolManager
) -> None:
    """DNS rebinding: a browser asks for the page's own host, and takes the answer for the page's."""
    port = server.address.rpartition(":")[2]
    answer = http.request(
        "GET", f"http://{server.address}{path}", headers={"Host": host.format(port=port)}, redirect=False
    )
    assert answer.status == 421
    assert b"HEADRACE_PUBLIC_HOSTS" in answer.data


@pytest.mark.parametrize("path", PROBED)
def test_probes_and_prometheus_ask_by_whatever_name_they_know(
    path: str, server: StatusServer, http: urllib3.PoolManager
) -> None:
    for host in ("10.1.2.3:9464", "headrace.shop.svc:9464", "headrace-7d9f"):
        answer = http.request("GET", f"http://{server.address}{path}", headers={"Host": host})
        assert answer.status in (200, 503), host


def test_figures_localhost_and_the_names_that_are_given_are_answered(
    board: StatusBoard, http: urllib3.PoolManager
) -> None:
    with StatusServer(board, "127.0.0.1:0", hosts=("Headrace.shop.svc", "a.example:443")) as server:

        def status(host: str) -> int:
            return http.request("GET", f"http://{server.address}/status", headers={"Host": host}).status

        for host in (server.address, "localhost:8080", "10.1.2.3", "[fd00::1]:9464", "a.example:443"):
            assert status(host) == 200, host
        assert (status("headrace.shop.svc:9464"), status("headrace.shop.svc")) == (200, 200)
        assert (status("a.example"), status("b.example"), status("shop.svc")) == (421, 421, 421)


@pytest.mark.parametrize("path", ASKED)
def test_a_page_elsewhere_asks_nothing_through_the_browser_of_somebody_here(
    path: str, server: StatusServer, http: urllib3.PoolManager
) -> None:
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert http.request("GET", f"http://{server.address}{path}", headers=headers).status == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    leads = http.request("GET", f"http://{server.address}{path}", headers=link, redirect=False).status
    assert leads == (200 if path.startswith(("/?", "/status")) or path == "/" else 403)


@pytest.mark.parametrize("path", [*ASKED[:-1], *PROBED, "/nothing", "/console/console.js"])
def test_no_answer_can_be_framed_sniffed_or_read_by_another_page(
    path: str, server: StatusServer, http: urllib3.PoolManager
) -> None:
    for host in (server.address, "evil.example"):
        answer = http.request("GET", f"http://{server.address}{path}", headers={"Host": host})
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert len(answer.headers.getlist("Content-Security-Policy")) == 1


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


def test_a_stop_is_quick_with_open_connections_and_gives_the_port_back(
    board: StatusBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_STOP_SECONDS", 60.0)
    server = StatusServer(board, "127.0.0.1:0")
    server.start()
    host, port = server.address.split(":")
    with urllib3.HTTPConnectionPool(host, int(port), retries=False, timeout=60) as kept:
        assert kept.request("GET", "/healthz").status == 200
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 30
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
            board.index("users", documents=1)

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
