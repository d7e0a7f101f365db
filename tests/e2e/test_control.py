"""A run is ordered about while it works: over its private address, and by commands."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.processes import until
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Quarantine, Quarantined
from headrace.state.key import StateKey
from integration.cli.command_line import Deployment, Outcome
from support.clients import process_of
from support.driven_run import free_address

ADA, GRAFANA = "ada-0123456789abcdef", "grafana-0123456789ab"
CONTROL = """
[[control.tokens]]
name = "ada"
scope = "operate"
token_file = "ada.token"
[[control.tokens]]
name = "grafana"
token_command = ["echo", "grafana-0123456789ab"]
"""


class Controlled:
    """A run with a private address, and somebody with a token."""

    def __init__(self, pipeline: Headrace) -> None:
        self.pipeline = pipeline
        self.address = free_address()
        folder = pipeline.config.parent
        self.token_file = folder / "ada.token"
        self.token_file.write_text(f"{ADA}\n")
        pipeline.config.write_text(pipeline.config.read_text() + CONTROL)
        pipeline.arguments = ("--private-address", self.address)
        self.commands = Deployment(folder, pipeline.shop.url, secrets=[ADA, GRAFANA])

    def ask(self, method: str, path: str, body: object = None, token: str = ADA) -> urllib3.BaseHTTPResponse:
        return urllib3.request(
            method,
            f"http://{self.address}{path}",
            headers={"Authorization": f"Bearer {token}"},
            json=body,
            retries=False,
            timeout=30,
        )

    def order(self, path: str, body: object = None) -> dict[str, Any]:
        """The result of an order, once it is done."""
        order = self.ended_order(path, body)
        assert order["state"] == "done", order
        result: dict[str, Any] = order["result"]
        return result

    def ended_order(self, path: str, body: object = None) -> dict[str, Any]:
        """An order, once it is done or has failed."""
        answer = self.ask("POST", path, body)
        assert answer.status == 202, answer.data
        return self._ended(answer)

    def at_once(self, method: str, path: str, body: object = None) -> Any:
        """What an order says that is carried out within the request, where the run is not slow."""
        answer = self.ask(method, path, body)
        return self._ended(answer)["result"] if answer.status == 202 else answer.json()

    def _ended(self, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
        place = answer.headers["Location"]
        assert until(lambda: self.ask("GET", place, token=GRAFANA).json()["state"] != "running", 120)
        order: dict[str, Any] = self.ask("GET", place).json()
        return order

    def through_cluster(self, *words: str) -> Outcome:
        return self.commands.type(*words, "--config", str(self.pipeline.config), "--slot", self.pipeline.name)

    def served(self, index: str) -> str:
        [generation] = self.pipeline.served(index)  # what readers see: the board may be a round behind
        return generation


@pytest.fixture(scope="module")
def controlled(deploy: Deploy) -> Iterator[Controlled]:
    with deploy(users=20) as pipeline:
        made = Controlled(pipeline)
        pipeline.start()
        pipeline.wait_ready()
        yield made
        public = pipeline.ask("/status").data + pipeline.ask("/metrics").data
        pipeline.terminate()
        for token in (ADA, GRAFANA):
            assert token not in pipeline.output.read_text()
            assert token not in public.decode()


@contextlib.contextmanager
def quarantined(pipeline: Headrace, generation: str, id_: str) -> Iterator[None]:
    """A document in quarantine, as if the cluster had refused it once."""
    with contextlib.closing(Client(Endpoint((pipeline.sink_url,)))) as client:
        quarantine = Quarantine(client, StateKey(pipeline.name, pipeline.prefix))
        quarantine.put([Quarantined.now("users", id_, "not a number", 16, generation)])
        yield
        quarantine.forget()


def kill_planner(pipeline: Headrace) -> None:
    """Kill the process that reads the slot: the query fails and is started again."""
    port = pipeline.shop.id(
        "SELECT client_port FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid "
        f"WHERE slot_name = '{pipeline.name}'"
    )
    psutil.Process(process_of(port)).kill()


def email_of(pipeline: Headrace, id_: int) -> Any:
    return pipeline.documents("users")[str(id_)]["email"]


def wait_held_back(pipeline: Headrace, id_: int) -> None:
    """Return once a change does not arrive: the reader learns of a pause a moment after its answer."""
    for number in range(20):
        email = f"before{number}@example.org"
        pipeline.shop.run(f"UPDATE users SET email = '{email}' WHERE id = {id_}")
        time.sleep(1.5)
        if email_of(pipeline, id_) != email:
            return
    raise AssertionError("a pause holds nothing back")


def stays(pipeline: Headrace, id_: int, email: str, seconds: float) -> None:
    """Make sure that a document keeps this value for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert email_of(pipeline, id_) == email
        pipeline.assert_running()
        time.sleep(0.2)


def test_an_index_is_rebuilt_verified_and_rolled_back_over_the_address(controlled: Controlled) -> None:
    pipeline, before = controlled.pipeline, controlled.served("users")
    after = controlled.order("/v1/indexes/users/reindex")["generation"]
    assert after != before
    report = controlled.order("/v1/indexes/users/verify", {"repair": True})
    assert (report["right"], report["documents"], report["generation"]) == (True, 20, after)
    assert controlled.order("/v1/indexes/users/rollback")["generation"] == before
    said = pipeline.output.read_text()
    for order in ("reindex", "verify", "rollback"):
        [line] = re.findall(rf"^.*control: ada from 127\.0\.0\.1: {order} of users.*$", said, re.MULTILINE)
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line)
    assert 'headrace_control_requests_total{order="reindex",outcome="accepted"} 1.0' in (
        pipeline.ask("/metrics").data.decode()
    )


@pytest.mark.long
def test_changed_files_are_taken_up_over_the_address(controlled: Controlled) -> None:
    assert controlled.order("/v1/reload") == {"added": [], "removed": [], "rebuilt": [], "adjusted": []}
    schema = controlled.pipeline.config.parent / "users.schema.yml"
    before = schema.read_text()
    schema.write_text(before + "nonsense: 1\n")
    try:
        refused = controlled.ended_order("/v1/reload")
        assert refused["state"] == "failed"
        assert "nonsense" in str(refused["error"])
    finally:
        schema.write_text(before)
    assert "every index is as it was" in controlled.through_cluster("reload").err


def test_a_verification_repairs_what_somebody_else_wrote(controlled: Controlled) -> None:
    pipeline = controlled.pipeline
    url = f"{pipeline.sink_url}/{controlled.served('users')}/_update/1?refresh=true"
    assert urllib3.request("POST", url, json={"doc": {"email": "somebody else"}}).status == 200
    # It added one to the version; in a database where nothing was written since, no position is behind that.
    pipeline.shop.run("SELECT pg_logical_emit_message(true, 'tests', '')")
    assert controlled.order("/v1/indexes/users/verify")["right"] is False
    report = controlled.order("/v1/indexes/users/verify", {"repair": True})
    assert (report["right"], report["repair"]["repaired"]) == (True, 1)
    assert pipeline.differences() == []


def test_a_pause_holds_changes_back_also_through_a_retry_until_the_resume(controlled: Controlled) -> None:
    """A reindex goes on meanwhile, and the slot keeps the log."""
    pipeline = controlled.pipeline
    assert controlled.at_once("POST", "/v1/pause")["paused"]["by"] == "ada"
    wait_held_back(pipeline, 2)
    email = email_of(pipeline, 2)
    behind = pipeline.shop.id("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    pipeline.shop.run("UPDATE users SET email = 'paused@example.org' WHERE id = 2")
    stays(pipeline, 2, email, 3)
    status = pipeline.status()
    assert (status["ready"], status["paused"]["by"]) == (True, "ada")
    assert any(warning.startswith("paused since ") for warning in status["warnings"])
    controlled.order("/v1/indexes/products/reindex")
    assert email_of(pipeline, 2) == email
    kill_planner(pipeline)
    pipeline.wait_until(
        lambda: "starting the stream again" in pipeline.output.read_text(), "did not notice the kill", 60
    )
    stays(pipeline, 2, email, 10)
    assert pipeline.confirmed() <= behind
    assert pipeline.status()["paused"]["by"] == "ada"
    assert controlled.at_once("POST", "/v1/resume") == {"paused": None}
    pipeline.converges()
    assert email_of(pipeline, 2) == "paused@example.org"
    assert pipeline.status()["paused"] is None


@pytest.mark.long
def test_a_command_pauses_and_resumes(controlled: Controlled) -> None:
    pipeline = controlled.pipeline
    outcome = controlled.through_cluster("pause")
    assert outcome.code == 0, outcome
    assert re.fullmatch(r"\S+@\S+", pipeline.status()["paused"]["by"])
    wait_held_back(pipeline, 3)
    email = email_of(pipeline, 3)
    pipeline.shop.run("UPDATE users SET email = 'cluster@example.org' WHERE id = 3")
    stays(pipeline, 3, email, 1)
    assert controlled.through_cluster("resume").code == 0
    pipeline.converges()
    assert email_of(pipeline, 3) == "cluster@example.org"


def test_refused_documents_are_listed_rebuilt_and_forgotten(controlled: Controlled) -> None:
    pipeline, generation = controlled.pipeline, controlled.served("users")
    with quarantined(pipeline, generation, "5"):
        [entry] = controlled.ask("GET", "/v1/indexes/users/quarantine", token=GRAFANA).json()
        assert (entry["id"], entry["reason"]) == ("5", "not a number")
        assert controlled.order("/v1/indexes/users/quarantine/retry", {"id": "5"}) == {"found": 1, "left": []}
        assert controlled.ask("GET", "/v1/quarantine").json() == []
    with quarantined(pipeline, generation, "6"):
        dropped = controlled.at_once("POST", "/v1/indexes/users/quarantine/drop", {"id": "6"})
        assert [each["id"] for each in dropped["dropped"]] == ["6"]
        assert controlled.ask("GET", "/v1/quarantine").json() == []
    assert pipeline.differences() == []


@pytest.mark.parametrize("way", ["address", "cluster"])
def test_a_command_changes_the_log_level(way: str, controlled: Controlled) -> None:
    pipeline = controlled.pipeline
    size = len(pipeline.output.read_text())
    if way == "address":
        assert controlled.at_once("PUT", "/v1/log-level", {"level": "debug"}) == {"level": "debug"}
    else:
        assert controlled.through_cluster("log-level", "debug").code == 0
    pipeline.shop.run("UPDATE users SET email = email || 'x' WHERE id = 4")
    pipeline.wait_until(
        lambda: " DEBUG headrace" in pipeline.output.read_text()[size:], "logs nothing at debug", 30
    )
    assert controlled.through_cluster("log-level", "info").code == 0


def test_a_wrong_token_orders_nothing(controlled: Controlled) -> None:
    assert controlled.ask("POST", "/v1/pause", token="wrong-0123456789abcdef").status == 401
    assert controlled.pipeline.status()["paused"] is None
