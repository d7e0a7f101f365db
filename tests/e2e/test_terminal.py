"""What does Ctrl-C do to the demo in a terminal, where every process in the foreground gets it?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.embedded.processes import port_is_free, until
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import SlotLock
from integration.cli.command_line import environment

_SHOWN_WITHIN = 180.0
_ENDED_WITHIN = 30.0
_CTRL_C = b"\x03"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARK = "HEADRACE_TEST_TERMINAL"
_ELSEWHERE = {
    "DATABASE_URL": "postgresql://me@127.0.0.1:1/shop",
    "PRIMARY_OPENSEARCH_URL": "http://127.0.0.1:1",
}
"""Somebody's own servers, of which the demo takes no notice."""
_END_LOCKS = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"


class Demo:
    """`headrace demo` in a terminal of its own.

    Args:
        temporary: where it and its servers may make folders.
    """

    def __init__(self, temporary: Path) -> None:
        self._own = uuid.uuid4().hex
        self._screen, far_end = pty.openpty()
        self._shown = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "demo", "--users", "20"],
            stdin=far_end,
            stdout=far_end,
            stderr=far_end,
            env=environment({_MARK: self._own, "TMPDIR": str(temporary), **_ELSEWHERE}),
            start_new_session=True,
            preexec_fn=_sit_down,  # noqa: PLW1509 - nothing is locked
        )
        os.close(far_end)

    @property
    def text(self) -> str:
        """All that was shown, without colours."""
        return _CONTROLS.sub("", self._shown.decode(errors="replace"))

    def shows(self, pattern: str) -> None:
        """Return once `pattern` has been shown."""
        end = time.monotonic() + _SHOWN_WITHIN
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text
            assert self._read(), self.text

    def press_ctrl_c(self) -> None:
        """Type it."""
        os.write(self._screen, _CTRL_C)

    def ended(self) -> int:
        """The exit code, within the time of the contract."""
        end = time.monotonic() + _ENDED_WITHIN
        while self._read():
            assert time.monotonic() < end, self.text
        return self._process.wait(max(end - time.monotonic(), 1))

    def members(self) -> list[psutil.Process]:
        """The living processes of the demo: whoever has inherited its mark."""
        return [one for one in psutil.process_iter() if self._is_member(one)]

    def close(self) -> None:
        """Kill what is left."""
        for one in self.members():
            with contextlib.suppress(psutil.Error):
                one.kill()
        self._process.wait()
        os.close(self._screen)

    def _read(self) -> bool:
        """Take what is shown, for a moment; False where the terminal was left by all."""
        if select.select([self._screen], [], [], 0.1)[0]:
            try:
                self._shown += os.read(self._screen, 65536)
            except OSError:
                return False
        return True

    def _is_member(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(_MARK) == self._own and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def _sit_down() -> None:
    """Make standard input the terminal that signals come from."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """An empty folder for what the demo makes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def demo(temporary: Path) -> Iterator[Demo]:
    one = Demo(temporary)
    yield one
    one.close()


def _ports(members: list[psutil.Process]) -> set[int]:
    """The ports on which these processes listen."""
    pids = {one.pid for one in members}
    listening = (one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
    return {one.laddr.port for one in listening if one.laddr and one.pid in pids}


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("starting PostgreSQL", 0.7),
        ("starting OpenSearch", 1.5),
        pytest.param("starting Spark", 0.5, marks=pytest.mark.long),
        pytest.param("starting Spark", 2.5, marks=pytest.mark.long),
        pytest.param("slot headrace at", 0.3, marks=pytest.mark.long),
        pytest.param("slot headrace at", 2.5, marks=pytest.mark.long),
        pytest.param("live", 0.2, marks=pytest.mark.long),
        pytest.param("→ .* after .* ms", 0.5, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_ends_the_demo_and_all_that_it_started(
    demo: Demo, temporary: Path, moment: str, seconds: float
) -> None:
    demo.shows(moment)
    time.sleep(seconds)
    members = demo.members()
    ports = _ports(members)
    demo.press_ctrl_c()
    code = demo.ended()
    left = [one for one in members if one.is_running()] + demo.members()
    assert (code, left, list(temporary.iterdir())) == (0, [], []), demo.text
    assert [port for port in ports if not port_is_free(port)] == []
    after = demo.text.rpartition("^C")[2]
    assert "stopping …" in after
    assert after.endswith("✓ stopped; nothing is left running\r\n")
    assert re.findall("error|Traceback|✗|Warning|py4j|WARN", demo.text) == []


@pytest.mark.long
def test_the_demo_s_servers_stay_up_where_its_run_has_ended(demo: Demo) -> None:
    demo.shows("→ .* after .* ms")
    [url] = re.findall(r"psql (\S+)", demo.text)
    with connect(url) as connection:
        lock = SlotLock(url, "headrace")

        def takes_lock() -> bool:
            execute(connection, _END_LOCKS)
            return until(lambda: lock.lost_to() is None, 0.5)

        assert until(takes_lock, 10), "another process has its deployment"
        demo.shows("the run has ended; its servers keep running")
        assert execute(connection, "SELECT 1") == [(1,)]
    demo.press_ctrl_c()
    assert demo.ended() == 1, demo.text
    assert "HEADRACE_SLOT" in demo.text
    assert demo.members() == []


@pytest.mark.parametrize("moment", ["starting OpenSearch", pytest.param("live", marks=pytest.mark.long)])
def test_a_second_ctrl_c_ends_the_demo_at_once_and_its_servers_follow(demo: Demo, moment: str) -> None:
    demo.shows(moment)
    members = demo.members()
    ports = _ports(members)
    demo.press_ctrl_c()
    demo.shows("stopping …")
    demo.press_ctrl_c()
    assert demo.ended() in (0, 130), demo.text
    assert psutil.wait_procs(members, timeout=60)[1] == []
    assert until(lambda: not demo.members(), 60), demo.members()
    assert [port for port in ports if not port_is_free(port)] == []
    assert "Traceback" not in demo.text
