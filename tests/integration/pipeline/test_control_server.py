"""What the private address takes and refuses, over real HTTP; the database is away, the cluster mostly."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.control import application
from headrace.pipeline.order_desk import OrderDesk
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.project import open_project
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.running import RunningPipeline
from headrace.pipeline.stopping import Stopping
from headrace.reporter import SilentReporter
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import OrderKind, Quarantine, Quarantined, StateKey
from headrace.state.orders import OF_GENERATIONS
from headrace.status import bodies

AWAY = "http://127.0.0.1:9"
OPERATE, READ = "operate-0123456789", "read-0123456789abc"
FILE = """
[source]
type = "postgres"
connection_url = "postgresql://nobody@127.0.0.1:9/nothing?connect_timeout=1"
[sinks.primary]
type = "opensearch"
url = "{sink}"
[[index]]
name = "people"
schema = "people.schema.yml"
[control]
{control}
[[control.tokens]]
name = "ada"
scope = "operate"
token_env = "ADA"
[[control.tokens]]
name = "grafana"
token_env = "GRAFANA"
"""
SCHEMA = "version: 1\ntable: people\nprimary_key: id\nfields:\n  - long: id\n"


class Lines(SilentReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    done = warning = info


class Address:
    """The private address of a pipeline that is not executed."""

    def __init__(self, folder: Path, control: str = "", sink: str = AWAY) -> None:
        (folder / "people.schema.yml").write_text(SCHEMA)
        (folder / "headrace.toml").write_text(FILE.format(control=control, sink=sink))
        self.folder, self.sink = folder, sink
        self.said = Lines()
        self.scheme, self.pool = "http", urllib3.PoolManager(retries=False, timeout=90)

    def pipeline(self, address: str = "127.0.0.1:0", **environ: str) -> RunningPipeline:
        tokens = {"ADA": OPERATE, "GRAFANA": READ, **environ}
        project = open_project(self.folder / "headrace.toml", tokens, slot=None, publication=None)
        return RunningPipeline(
            project,
            self.said,
            RunOptions(),
            load=lambda: (project, ()),
            private_address=address,
            stopping=Stopping(),
        )

    @contextmanager
    def served(self, address: str = "127.0.0.1:0") -> Iterator[RunningPipeline]:
        with self.pool, self.pipeline(address) as self.running:
            yield self.running

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = OPERATE,
        data: bytes | None = None,
        **headers: str,
    ) -> urllib3.BaseHTTPResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = f"{self.scheme}://{self.running.private_address}{path}"
        return self.pool.request(method, url, body=data, headers=sent, redirect=False)

    def counted(self) -> Mapping[tuple[str, str], int]:
        return self.running.board.view().control_requests

    def ended(self, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
        """The order of a 202, once it has ended."""
        assert answer.status == 202, answer.data
        place = answer.headers["Location"]
        assert place == f"/v1/orders/{answer.json()['id']}"
        end = time.monotonic() + 60
        while (order := self.ask("GET", place).json())["state"] == "running":
            assert time.monotonic() < end
            time.sleep(0.05)
        found: dict[str, Any] = order
        return found


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Address]:
    made = Address(tmp_path)
    with made.served():
        yield made
    said = "\n".join(made.said.lines)
    assert OPERATE not in said
    assert READ not in said


@pytest.fixture
def ordered(
    tmp_path: Path, opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Address]:
    """An address whose cluster is there, and a run that carries orders out once it has begun."""
    monkeypatch.setattr(application, "_AT_ONCE_SECONDS", 60.0)
    made = Address(tmp_path, sink=opensearch.url)
    with made.served() as running:
        running.desk.mailbox.forget()
        running.desk.begin()
        with carrying_out(running.desk):
            yield made
        running.desk.mailbox.forget()


@contextmanager
def carrying_out(desk: OrderDesk) -> Iterator[None]:
    """Do, with the orders of the desk, what the loop of a run does."""
    ended = threading.Event()

    def carry_out() -> None:
        while not ended.wait(0.05):
            with contextlib.suppress(HeadraceError):
                for order in desk.open_orders() if desk.has_begun else ():
                    if order.kind not in {*OF_GENERATIONS, OrderKind.RELOAD}:
                        desk.carry_out(order)

    thread = threading.Thread(target=carry_out)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def refused(answer: urllib3.BaseHTTPResponse, status: int, code: str = "HEADRACE_USAGE") -> str:
    """The detail of a problem."""
    assert answer.status == status, answer.data
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert OPERATE not in answer.data.decode()
    detail: str = problem["detail"]
    return detail


# Who may.


def test_without_a_token_nothing_is_told(address: Address) -> None:
    for path in ("/v1/status", "/v1/pause", "/nothing", "/"):
        answer = address.ask("GET", path, token=None)
        refused(answer, 401, "HEADRACE_AUTHENTICATION")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert address.counted() == {("unknown", "no_token"): 4}


@pytest.mark.parametrize(
    "sent", [f"Basic {OPERATE}", OPERATE, "Bearer", "Bearer ", f"Bearer{OPERATE}", "Bearer  "]
)
def test_a_token_that_is_not_sent_as_one_is_none(sent: str, address: Address) -> None:
    refused(address.ask("GET", "/v1/status", Authorization=sent), 401, "HEADRACE_AUTHENTICATION")
    assert address.counted() == {("unknown", "no_token"): 1}


@pytest.mark.parametrize("token", ["x", OPERATE[:-1], OPERATE + "0", OPERATE.upper(), "\xe9" * 20])
def test_a_wrong_token_is_refused_counted_and_logged_without_itself(token: str, address: Address) -> None:
    answer = address.ask("POST", "/v1/pause", Authorization=f"Bearer {token}")
    refused(answer, 401, "HEADRACE_AUTHENTICATION")
    assert address.counted() == {("unknown", "wrong_token"): 1}
    assert address.said.lines == ["control: a wrong token from 127.0.0.1"]
    assert address.running.board.paused is None


def test_after_ten_wrong_tokens_nothing_from_there_is_looked_at(address: Address) -> None:
    for _ in range(10):
        assert address.ask("GET", "/v1/status", token="wrong", X_Forwarded_For="192.0.2.1").status == 401
    answer = address.ask("GET", "/v1/status")
    refused(answer, 429)
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert address.counted()["unknown", "too_many_failures"] == 1
    assert len(address.said.lines) == 10


def test_a_token_to_look_orders_nothing(address: Address) -> None:
    assert address.ask("GET", "/v1/status", token=READ).status == 200
    for method, path in (
        ("POST", "/v1/pause"),
        ("POST", "/v1/resume"),
        ("PUT", "/v1/log-level"),
        ("POST", "/v1/indexes/people/reindex"),
        ("POST", "/v1/indexes/people/rollback"),
        ("POST", "/v1/indexes/people/verify"),
        ("POST", "/v1/indexes/people/quarantine/retry"),
        ("POST", "/v1/quarantine/drop"),
    ):
        detail = refused(address.ask(method, path, {}, token=READ), 403, "HEADRACE_PRIVILEGE")
        assert "'grafana'" in detail
    assert address.counted()["pause", "wrong_scope"] == 1
    assert address.running.board.paused is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost"])
def test_a_request_for_another_host_is_refused_before_its_token_is_looked_at(
    host: str, address: Address
) -> None:
    """A page that a browser was led to by a name of its own (DNS rebinding)."""
    refused(address.ask("GET", "/v1/status", token="wrong", Host=host), 421)
    assert address.counted() == {("unknown", "wrong_host"): 1}


def test_names_of_this_machine_and_those_of_the_file_are_allowed(tmp_path: Path) -> None:
    address = Address(tmp_path, 'allowed_hosts = ["headrace.example", "other.example:9"]')
    with address.served() as running:
        port = str(running.private_address).rpartition(":")[2]
        for host in (f"LOCALHOST:{port}", "headrace.example", "Headrace.example:1", "other.example:9"):
            assert address.ask("GET", "/v1/status", Host=host).status == 200, host
        assert address.ask("GET", "/v1/status", Host="other.example").status == 421


def test_the_public_address_answers_to_the_names_of_the_file_and_of_the_command(tmp_path: Path) -> None:
    address = Address(tmp_path)
    file = tmp_path / "headrace.toml"
    file.write_text(file.read_text() + '[server]\npublic_hosts = ["of-the-file"]\n')
    running = RunningPipeline(
        open_project(file, {"ADA": OPERATE, "GRAFANA": READ}),
        address.said,
        RunOptions(),
        load=lambda: (None, ()),
        address="127.0.0.1:0",
        hosts=("of-the-command",),
        stopping=Stopping(),
    )
    with running, urllib3.PoolManager(retries=False, timeout=15) as pool:
        for host, status in (("of-the-file:80", 200), ("of-the-command", 200), ("evil.example", 421)):
            answer = pool.request("GET", f"http://{running.address}/status", headers={"Host": host})
            assert answer.status == status, host


def test_a_bug_in_the_thread_of_a_run_is_told_without_what_its_error_quotes(tmp_path: Path) -> None:
    class Faulty(RunningPipeline):
        def execute(self) -> None:
            raise ValueError("Invalid header value b'Bearer secret'")

    project = Address(tmp_path).pipeline()._project
    running = Faulty(project, Lines(), RunOptions(), load=lambda: (project, ()))
    with pytest.raises(HeadraceError, match="a bug: ValueError: Invalid header value b …") as caught, running:
        pass  # leaving waits for the thread
    assert "secret" not in str(caught.value)


def test_no_answer_of_the_private_address_can_be_framed_or_sniffed(address: Address) -> None:
    for host in (address.running.private_address or "", "evil.example"):
        answer = address.ask("GET", "/v1/status", Host=host)
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


# What is asked for.


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/status/", "/v1/indexes/people", "/status"])
def test_other_pages_do_not_exist(path: str, address: Address) -> None:
    refused(address.ask("GET", path), 404)
    assert address.counted() == {("unknown", "not_found"): 1}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/pause"), ("POST", "/v1/status"), ("DELETE", "/v1/orders")]
)
def test_other_methods_are_refused(method: str, path: str, address: Address) -> None:
    answer = address.ask(method, path)
    refused(answer, 405)
    assert answer.headers["Allow"]


@pytest.mark.parametrize("order", ["reindex", "rollback", "verify"])
def test_an_index_that_is_not_deployed_is_not_found(order: str, address: Address) -> None:
    refused(address.ask("POST", f"/v1/indexes/nobody/{order}", {}), 404)
    assert address.counted() == {(order, "unknown_index"): 1}


def test_an_order_that_is_not_known_is_not_found(ordered: Address) -> None:
    assert ordered.ask("GET", "/v1/orders", token=READ).json() == []
    refused(ordered.ask("GET", "/v1/orders/0123"), 404)


LARGE = b'{"level": "' + b"x" * (64 * 1024) + b'"}'


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(chunked: bool, address: Address) -> None:
    """Also where its length is not told beforehand."""
    url = f"http://{address.running.private_address}/v1/log-level"
    headers = {"Authorization": f"Bearer {OPERATE}", "Content-Type": "application/json"}
    body = iter([LARGE[:60_000], LARGE[60_000:]]) if chunked else LARGE
    answer = address.pool.request("PUT", url, body=body, headers=headers, chunked=chunked)
    refused(answer, 413)
    assert address.counted() == {("log_level", "too_large"): 1}


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(address: Address) -> None:
    at = str(address.running.private_address)
    host, _, port = at.rpartition(":")
    lines = ("PUT /v1/log-level HTTP/1.1", f"Host: {at}", f"Authorization: Bearer {OPERATE}")
    head = "\r\n".join([*lines, "Content-Type: application/json", "Content-Length: 10000000", "", ""])
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(head.encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"null",
        b'"info"',
        b'{"level": "INFO"}',
        b'{"level": 1}',
        b'{"level": "info", "more": 1}',
        b"{}",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"level": NaN}',
    ],
)
def test_a_body_that_is_not_what_the_order_takes_is_refused(data: bytes, address: Address) -> None:
    answer = address.ask("PUT", "/v1/log-level", data=data, Content_Type="application/json")
    refused(answer, 422)
    assert len(answer.data) < 1000
    assert address.counted() == {("log_level", "malformed"): 1}


@pytest.mark.parametrize(
    "body",
    [
        {"percent": 0},
        {"percent": 101},
        {"percent": True},
        {"percent": "5"},
        {"repair": 1},
        {"repair": "yes"},
        {"seed": 1},
        {"sink": ["primary"]},
        {"index": "people"},
    ],
    ids=str,
)
def test_a_verification_takes_what_the_command_takes(body: object, address: Address) -> None:
    refused(address.ask("POST", "/v1/indexes/people/verify", body), 422)


def test_orders_without_options_take_none(address: Address) -> None:
    for path in ("/v1/pause", "/v1/resume", "/v1/indexes/people/reindex", "/v1/indexes/people/rollback"):
        refused(address.ask("POST", path, {"force": True}), 422)
    assert address.running.board.paused is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {},
        {"Content_Type": "application/json", "Content_Encoding": "gzip"},
    ],
    ids=str,
)
def test_a_body_of_another_kind_is_refused(headers: dict[str, str], address: Address) -> None:
    refused(address.ask("PUT", "/v1/log-level", data=b'{"level": "info"}', **headers), 415)
    assert address.counted() == {("log_level", "wrong_media_type"): 1}


def test_a_body_that_does_not_come_is_not_waited_for(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_SECONDS", 0.2)
    host, port = str(address.running.private_address).split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        head = f"POST /v1/pause HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {OPERATE}\r\n"
        client.sendall(f"{head}Content-Length: 2\r\n\r\n{{".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert address.running.board.paused is None


# Orders.


def test_a_pause_and_a_resume_say_who_and_are_logged(ordered: Address) -> None:
    paused = ordered.ask("POST", "/v1/pause").json()["paused"]
    assert paused["by"] == "ada"
    assert ordered.ask("GET", "/v1/status").json()["paused"] == paused
    assert ordered.ask("POST", "/v1/pause", {}).json()["paused"] == paused
    assert ordered.ask("POST", "/v1/resume").json() == {"paused": None}
    assert ordered.running.board.paused is None
    assert until(lambda: len(ordered.said.lines) == 8, 30)  # the last is said once the answer is stored
    assert [re.sub("[0-9a-f]{16}", "ID", line) for line in ordered.said.lines] == [
        "control: ada from 127.0.0.1: pause, order ID",
        "paused by ada: changes wait in the log, which the slot retains",
        "control: pause, order ID: done",
        "control: ada from 127.0.0.1: pause, order ID",
        "control: pause, order ID: done",
        "control: ada from 127.0.0.1: resume, order ID",
        "resumed by ada",
        "control: resume, order ID: done",
    ]
    assert ordered.counted()["pause", "accepted"] == 2
    listed = ordered.ask("GET", "/v1/orders", token=READ).json()
    assert [(order["order"], order["state"]) for order in listed] == [
        ("pause", "done"),
        ("pause", "done"),
        ("resume", "done"),
    ]


def test_the_log_level_is_set(ordered: Address) -> None:
    logger = logging.getLogger("headrace")
    kept = logger.level
    try:
        for level in ("debug", "warning"):
            assert ordered.ask("PUT", "/v1/log-level", {"level": level}).json() == {"level": level}
            assert logger.level == getattr(logging, level.upper())
    finally:
        logger.setLevel(kept)


def test_an_order_that_no_run_has_taken_yet_is_followed_until_one_has(
    ordered: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here stands the address of a run that waits for another one to end."""
    monkeypatch.setattr(application, "_AT_ONCE_SECONDS", 0.1)
    ordered.running.desk.has_begun = False
    answer = ordered.ask("POST", "/v1/pause")
    assert (answer.status, answer.json()["state"]) == (202, "running")
    assert ordered.running.board.paused is None
    ordered.running.desk.has_begun = True
    assert ordered.ended(answer)["result"]["paused"]["by"] == "ada"


@pytest.mark.parametrize(
    ("order", "code"), [("reindex", "HEADRACE_CONNECTION"), ("rollback", "HEADRACE_CONNECTION")]
)
def test_an_order_that_cannot_be_given_now_says_why_and_is_not_kept(
    order: str, code: str, ordered: Address
) -> None:
    answer = ordered.ask("POST", f"/v1/indexes/people/{order}")
    assert "127.0.0.1" in refused(answer, 503, code)
    assert answer.headers["Retry-After"]
    assert ordered.counted() == {(order, "failed"): 1}
    assert ordered.ask("GET", "/v1/orders").json() == []


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/pause"), ("GET", "/v1/orders")])
def test_without_the_cluster_no_order_is_taken(method: str, path: str, address: Address) -> None:
    answer = address.ask(method, path)
    refused(answer, 503, "HEADRACE_SINK_UNREACHABLE")
    assert answer.headers["Retry-After"]


def test_the_same_order_is_refused_while_it_is_open(ordered: Address) -> None:
    ordered.running.desk.has_begun = False
    first = ordered.ask("POST", "/v1/indexes/people/verify").json()
    detail = refused(ordered.ask("POST", "/v1/indexes/people/verify"), 409)
    assert first["id"] in detail


@pytest.mark.parametrize(
    ("path", "name", "body"),
    [
        ("/v1/indexes/people/verify", "verify", {"repair": True, "percent": 5, "seed": "a", "sink": None}),
        ("/v1/indexes/people/verify", "verify", {"sink": "elsewhere"}),
        ("/v1/indexes/people/quarantine/retry", "quarantine_retry", {"id": "1"}),
    ],
)
def test_an_order_that_fails_later_is_followed_to_its_error(
    path: str, name: str, body: object, ordered: Address
) -> None:
    with contextlib.closing(Client(Endpoint((ordered.sink,)))) as client:
        quarantine = Quarantine(client, StateKey("headrace", ""))
        quarantine.put([Quarantined.now("people", "1", "not a number", 16, "people_1")])
        order = ordered.ended(ordered.ask("POST", path, body))
        quarantine.forget()
    assert (order["order"], order["by"], order["state"], order["result"]) == (name, "ada", "failed", None)
    assert order["error"]["code"] in ("HEADRACE_CONNECTION", "HEADRACE_USAGE")
    assert order["asked_at"] <= order["ended_at"]
    assert [each["id"] for each in ordered.ask("GET", "/v1/orders", token=READ).json()] == [order["id"]]
    assert until(lambda: len(ordered.said.lines) == 2, 30)
    first, last = ordered.said.lines
    assert first.startswith(f"control: ada from 127.0.0.1: {name.replace('_', ' ')}")
    assert order["id"] in first
    assert order["error"]["code"] in last


def test_documents_leave_the_quarantine_by_an_order(ordered: Address) -> None:
    with contextlib.closing(Client(Endpoint((ordered.sink,)))) as client:
        quarantine = Quarantine(client, StateKey("headrace", ""))
        quarantine.put([Quarantined.now("people", id_, "no", 16, "people_1") for id_ in ("1", "2")])
        dropped = ordered.ask("POST", "/v1/indexes/people/quarantine/drop", {"id": "2"}).json()["dropped"]
        assert [entry["id"] for entry in dropped] == ["2"]
        assert [entry["id"] for entry in ordered.ask("GET", "/v1/quarantine").json()] == ["1"]
        [order] = ordered.ask("GET", "/v1/orders").json()
        assert order["text"] == "forgotten: 1 document"
        quarantine.forget()


def test_a_quarantine_that_cannot_be_read_is_said_to_be(address: Address) -> None:
    refused(address.ask("GET", "/v1/quarantine", token=READ), 503, "HEADRACE_SINK_UNREACHABLE")
    refused(address.ask("POST", "/v1/indexes/people/quarantine/drop"), 503, "HEADRACE_SINK_UNREACHABLE")


def test_nothing_is_printed(address: Address, capfd: pytest.CaptureFixture[str]) -> None:
    address.ask("POST", "/v1/pause", token="wrong")
    address.ask("GET", "/v1/status")
    assert capfd.readouterr() == ("", "")


# The address.


def test_a_taken_port_is_one_clear_error(address: Address) -> None:
    taken = str(address.running.private_address)
    with pytest.raises(HeadraceError, match=f"the private address {taken} is taken") as caught:
        address.pipeline(taken).__enter__()
    assert caught.value.kind is Kind.PORT_IN_USE


def test_nothing_listens_where_no_address_was_given(address: Address, tmp_path: Path) -> None:
    environ = {"ADA": OPERATE, "GRAFANA": READ}
    running = Pipeline.from_file(tmp_path / "headrace.toml", environ=environ).start()
    assert (running.address, running.private_address) == (None, None)


def test_a_token_that_cannot_be_read_keeps_it_from_being_served(tmp_path: Path) -> None:
    file = Address(tmp_path)
    (tmp_path / "headrace.toml").write_text(
        FILE.format(control="", sink=AWAY).replace('token_env = "ADA"', 'token_file = "missing"')
    )
    with pytest.raises(HeadraceError, match="the token file of 'ada' cannot be read") as caught:
        file.pipeline().__enter__()
    assert caught.value.exit_code == 2


def test_an_address_of_every_interface_without_a_certificate_is_warned_of(tmp_path: Path) -> None:
    address = Address(tmp_path)
    with address.served("0.0.0.0:0") as running:
        port = str(running.private_address).rpartition(":")[2]
        assert address.ask("GET", "/v1/status", Host=f"localhost:{port}").status == 200
        assert address.ask("GET", "/v1/status", Host=f"192.0.2.7:{port}").status == 421
    [warning] = address.said.lines
    assert "has no certificate" in warning


def test_orders_travel_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(tmp_path / "certificate.pem", append=number > 0)
    address = Address(tmp_path, 'certificate_file = "certificate.pem"\nkey_file = "key.pem"')
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    address.scheme, address.pool = (
        "https",
        urllib3.PoolManager(retries=False, ssl_context=trusted, timeout=10),
    )
    with address.served() as running:
        assert address.ask("GET", "/v1/status").status == 200
        plain = f"http://{running.private_address}/v1/status"
        with pytest.raises(urllib3.exceptions.HTTPError):
            urllib3.request("GET", plain, retries=False, timeout=5)


def test_a_certificate_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    address = Address(tmp_path, 'certificate_file = "certificate.pem"\nkey_file = "key.pem"')
    with pytest.raises(HeadraceError, match=r"cannot use .*certificate\.pem") as caught:
        address.pipeline().__enter__()
    assert caught.value.exit_code == 2
    for name in ("certificate.pem", "key.pem"):
        (tmp_path / name).write_text("no certificate")
    with pytest.raises(HeadraceError, match=r"cannot use .*certificate\.pem"):
        address.pipeline().__enter__()
