"""A cluster, a port, a disk or a network that is not as it must be; and Ctrl-C."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import free_port
from integration.cli.command_line import NO_SPARK, Deployment, Outcome, environment
from support.http_proxy import Answer, HttpProxy, Request


class _Stranger(http.server.BaseHTTPRequestHandler):
    """Answers, but is no search cluster."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_cluster_that_is_not_there_is_named_without_its_password(people: Deployment) -> None:
    port = free_port()
    people.sink = f"http://me:s3cret-word@127.0.0.1:{port}"
    people.secrets.append("s3cret-word")
    people.write()
    text = people.type("check").refused(1, "SINK_UNREACHABLE")
    assert f"127.0.0.1:{port}" in text


def test_what_is_no_cluster_ends_a_run_before_anything_is_made(people: Deployment, stranger: str) -> None:
    people.sink = stranger
    people.write()
    told = people.type("run")
    assert (told.code, len(told.errors)) == (1, 1), told.err
    assert stranger.removeprefix("http://") in told.errors[0][1]
    assert people.left_in_database() == []


def test_a_taken_port_is_named_before_anything_is_connected_to(people: Deployment) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = people.type("run", HEADRACE_PUBLIC_ADDRESS=address).refused(1, "PORT_IN_USE")
    assert address in text
    assert people.left_in_database() == []


@pytest.mark.parametrize(
    ("cache", "kind", "remedy"),
    [
        ("file/below", "DISK", "XDG_CACHE_HOME"),
        pytest.param("empty", "DOWNLOAD", "HEADRACE_MAVEN_REPOSITORY", marks=pytest.mark.long),
    ],
)
def test_a_demo_that_cannot_fetch_its_parts_leaves_nothing(
    people: Deployment, tmp_path: Path, cache: str, kind: str, remedy: str
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / cache
    told = people.type(
        "demo",
        "--once",
        XDG_CACHE_HOME=str(folder),
        HEADRACE_MAVEN_REPOSITORY=f"http://127.0.0.1:{free_port()}/",
        HEADRACE_USERS="5",
    )
    assert remedy in told.refused(1, kind)
    assert [file for file in folder.rglob("*") if file.is_file()] == []


def _interrupted(deployment: Deployment, words: Sequence[str], silent: socket.socket | None) -> Outcome:
    """Type a command, and Ctrl-C when it has connected to the silent server, or else asks."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=deployment.folder,
        env=environment(NO_SPARK),
        # a test that runs in the background would hand down a SIGINT that is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - nothing is locked
    )
    assert process.stderr is not None
    before = b""
    if silent is not None:
        silent.settimeout(60)
        accepted, _ = silent.accept()
    else:
        while b"[y/N]" not in before:
            assert select.select([process.stderr], [], [], 60)[0]
            before += os.read(process.stderr.fileno(), 65536)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if silent is not None:
        accepted.close()
    return Outcome(process.returncode, out.decode(), (before + err).decode())


@pytest.mark.long
@pytest.mark.parametrize("command", ["check", "setup", "teardown", "init"])
def test_ctrl_c_while_waiting_for_a_server_is_one_line(people: Deployment, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me:s3cret-word@127.0.0.1:{silent.getsockname()[1]}/shop"
        people.url = url
        people.write()
        words = [command, url, "--table", "people", "--folder", "new"] if command == "init" else [command]
        told = _interrupted(people, words, silent)
    assert (told.code, told.out) == (130, "")
    assert told.err.strip() == "! interrupted before the command was done"
    assert not (people.folder / "new").exists()


def test_ctrl_c_ends_a_run_that_still_waits_for_its_servers(people: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        people.url = f"postgresql://me:s3cret-word@127.0.0.1:{silent.getsockname()[1]}/shop"
        people.write()
        told = _interrupted(people, ["run"], silent)
    assert told.code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO headrace.run: stopped", told.err.strip())


def test_a_run_can_log_json_objects(people: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        people.url = f"postgresql://me:s3cret-word@127.0.0.1:{silent.getsockname()[1]}/shop"
        people.write()
        told = _interrupted(people, ["run", "--log-format", "json"], silent)
    [line] = map(json.loads, told.err.splitlines())
    dt.datetime.fromisoformat(line.pop("time"))
    assert line == {"level": "INFO", "component": "headrace.run", "message": "stopped", "slot": people.name}


def test_the_error_that_ends_a_run_is_a_json_object_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "run", "--log-format", "json"]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment({})
    )
    line = json.loads(told.stderr)
    assert (told.returncode, line["level"], line["code"]) == (2, "ERROR", "HEADRACE_CONFIG")
    assert "headrace.toml" in line["message"]
    assert "headrace init" in line["remedy"]


def test_ctrl_c_at_the_question_alters_nothing(people: Deployment) -> None:
    told = _interrupted(people, ["setup"], None)
    assert told.code == 130
    assert "Traceback" not in told.err
    assert "interrupted" in told.err
    assert people.left_in_database() == []


EARLY = """
import sys
from headrace.cli import main

class Interrupt:
    def find_spec(self, name, *_):
        if name == "headrace.postgres.ddl_plan":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
main(["check"])
"""


def test_ctrl_c_while_the_program_itself_is_being_loaded_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY], capture_output=True, text=True, check=False, env=environment({})
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "! interrupted before the command was done"


BUG = """
import sys
from headrace.cli import main
from headrace.cli.context import Group, command

@command("Raise an error that is a bug.", Group.LOOK)
def stumble(context) -> None:
    raise ValueError("no good:\\npostgresql://me:s3cret-word@127.0.0.1/shop")

main(sys.argv[1:])
"""


def test_a_bug_is_one_line_and_its_traceback_only_for_who_debugs() -> None:
    def stumble(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", BUG, "stumble", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment({}))

    told = stumble()
    assert (told.returncode, told.stdout) == (1, "")
    [line] = told.stderr.splitlines()
    assert line.startswith("error [HEADRACE_INTERNAL] a bug: ValueError: no good:")
    assert "s3cret-word" not in line
    assert "Traceback" in stumble("--log-level", "debug").stderr


MUTE_BUG = BUG.replace("ValueError(", "Mute(").replace(
    "@command",
    """class Mute(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError

@command""",
)


def test_a_bug_whose_own_text_fails_is_one_line_too() -> None:
    """As that of an error of Java's, once Java has ended."""
    command = [sys.executable, "-c", MUTE_BUG, "stumble"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment({}))
    [line] = told.stderr.splitlines()
    assert line.startswith("error [HEADRACE_INTERNAL] a bug: Mute:")


def test_a_part_that_is_not_installed_is_named_with_what_brings_it() -> None:
    without = "import sys; sys.modules['pyspark'] = None; from headrace.cli import main; main(['run'])"
    told = subprocess.run(
        [sys.executable, "-c", without], capture_output=True, text=True, check=False, env=environment({})
    )
    assert told.returncode == 1
    assert "[HEADRACE_DEPENDENCY] pyspark is not installed. Run: pip install 'headrace[spark]'" in told.stderr


def test_check_says_what_it_may_not_look_at_and_what_others_can_read(
    whole: Deployment, opensearch: EmbeddedOpenSearch
) -> None:
    def forbid(request: Request) -> Answer | None:
        return (
            Answer(403, b'{"error": {"type": "security_exception"}}') if "/_stats" in request.target else None
        )

    with HttpProxy(opensearch.url, spoil=forbid) as front:
        whole.sink = front.url
        whole.write()
        told = whole.type("check")
    assert told.code == 0, told.err
    assert "indices:monitor/stats" in told.err


@pytest.mark.long
def test_check_makes_one_index_of_many_that_are_alike(
    whole: Deployment, opensearch: EmbeddedOpenSearch
) -> None:
    """To make one costs the cluster a third of a second; what it refuses of any is told all the same."""
    odd = whole.folder / "odd.json"
    tables = [f'[[index]]\nname = "p{n}"\nschema = "people.schema.yml"' for n in range(1, 20)]
    tables[-1] += '\nmappings_file = "odd.json"'
    whole.more = "\n".join(tables)
    made: list[str] = []

    def note(request: Request) -> None:
        if request.method == "PUT":
            made.append(request.target)

    with HttpProxy(opensearch.url, spoil=note) as front:
        whole.sink = front.url
        whole.write()
        odd.write_text('{"properties": {"more": {"type": "text"}}}')
        told = whole.type("check")
        assert told.code == 0, told.err
        assert len(made) == 1
        odd.write_text('{"properties": {"more": {"type": "no such"}}}')
        told = whole.type("check")
    assert told.code != 0
    assert "the cluster refuses an index for p19" in told.err
    assert "no such" in told.err
    assert len(made) == 3, "the second time the odd one is tried too"
