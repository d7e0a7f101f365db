"""Run deployments as an operator does: by commands, HTTP, signals and kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import urllib3

import headrace
from headrace.embedded.processes import free_port_among, living, tail, until
from support.warm_commands import run_command

READY_WITHIN = 240.0
ENDED_WITHIN = 30.0
"""Seconds; the last one is the contract's."""

_PORTS = range(10_000, 30_000)
"""The kernel gives none of them to a socket that asks for any port while the run still starts."""

_POLL = 0.05


class DrivenRun:
    """One deployment and the process tree of its `headrace run`, while it runs.

    Args:
        config: its deployment file.
        name: of slot and publication, and of its files.
        output: the name of its files, where it is another.
        folder: for output and marks.
        ready_within: how many seconds its backfill may take.

    Attributes:
        arguments: more words of the command.
        variables: more variables of its environment.
    """

    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, config: Path, name: str, folder: Path, *, output: str = "", ready_within: float = READY_WITHIN
    ) -> None:
        self.output = folder / f"{output or name}.log"
        self._config = config
        self._name = name
        self._mark = folder / f"{output or name}.mark"
        self._ready_within = ready_within
        self._address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, failpoint: str = "") -> None:
        """Start `headrace run`; with the name of a commit point, it stands still there, to be killed."""
        self._start(("-m", "headrace"), failpoint)

    def _start(self, program: Sequence[str], failpoint: str) -> None:
        assert self._process is None, "it runs already"
        self._mark.unlink(missing_ok=True)
        self._address = free_address()
        armed = {"HEADRACE_FAILPOINT": failpoint, "HEADRACE_FAILPOINT_MARK": str(self._mark)}
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *program, *self._words(), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment({**self.variables, **(armed if failpoint else {})}),
                start_new_session=True,
            )

    def _words(self) -> Sequence[str]:
        """Return the words of the command."""
        named = ("--slot", self._name, "--publication", self._name)
        return ("run", "--config", str(self._config), *named, "--public-address", self._address)

    def wait_ready(self) -> None:
        """Return once every index is backfilled and the stream follows."""
        self.wait_until(self.is_ready, "was not ready", self._ready_within)

    def is_ready(self) -> bool:
        """Whether every index is backfilled and the stream follows."""
        return self._get("/readyz").status == 200

    def wait_failpoint(self) -> None:
        """Return once it stands still at the commit point that it was started with."""
        self.wait_until(self.is_at_failpoint, "did not reach its commit point", READY_WITHIN)

    def is_at_failpoint(self) -> bool:
        """Whether it stands still there."""
        return self._mark.exists()

    def wait_until(self, condition: Callable[[], bool], failure: str, seconds: float) -> None:
        """Return once `condition` holds.

        Raises:
            AssertionError: it did not within `seconds`, or the run ended; with the end of its output.
        """
        end = time.monotonic() + seconds
        while not condition():
            self.assert_running()
            if time.monotonic() > end:
                raise AssertionError(f"it {failure} within {seconds:.0f} s\n{self.last_output()}")
            time.sleep(_POLL)

    def assert_running(self) -> None:
        """Make sure that the run has not ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise AssertionError(f"it ended by itself with exit code {code}\n{self.last_output()}")

    def status(self) -> dict[str, Any]:
        """What `/status` says now; empty while nothing answers."""
        answer = self._get("/status", seconds=60)
        found: dict[str, Any] = answer.json() if answer.data else {}
        return found

    @property
    def page(self) -> str:
        """The console's URL."""
        return f"http://{self._address}"

    def ask(self, path: str) -> urllib3.BaseHTTPResponse:
        """What a page of its public address answers, however long that takes."""
        return urllib3.request("GET", f"{self.page}{path}", retries=False, timeout=60)

    def kill(self) -> None:
        """Kill -9 every process of the tree, Spark's Java and its Python workers too."""
        members = self.members()
        assert members, "nothing runs that could be killed"
        for number in (signal.SIGSTOP, signal.SIGKILL):
            _send(members, number)
        # Also one that was started while they were listed.
        until(lambda: not _send(self.members(), signal.SIGKILL), ENDED_WITHIN)
        left = self.members()
        self._collect()
        assert left == []

    def suspend(self) -> None:
        """SIGSTOP every process of the tree, as if its machine had vanished."""
        _send(self.members(), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT every process of the tree."""
        _send(self.members(), signal.SIGCONT)

    def kill_first(self) -> None:
        """Kill -9 the process that was started, and none of those that it started."""
        assert self._process is not None
        self._process.kill()

    def suspend_first(self) -> None:
        """SIGSTOP the process that was started, and none of those that it started; `resume` ends it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def run_command(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run another command on the deployment, to its end."""
        words = (*words, "--config", str(self._config), "--slot", self._name)
        return run_command(words, self._config.parent, _environment({}), seconds=seconds)

    def hang_up(self) -> None:
        """SIGHUP, which asks for a reload."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def terminate(self) -> None:
        """SIGTERM; it must end within 30 s, with exit code 0, and leave no process behind."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(ENDED_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"no end within {ENDED_WITHIN:.0f} s of SIGTERM\n{self.last_output()}"
            ) from None
        until(lambda: not self.members(), ENDED_WITHIN)
        left = self.members()
        _send(left, signal.SIGKILL)
        self._collect()
        assert code == 0, f"exit code {code} after SIGTERM\n{self.last_output()}"
        assert left == []

    def wait_end(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has ended by itself.

        Raises:
            AssertionError: it did not within `seconds`.
        """
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds:.0f} s\n{self.last_output()}") from None

    def runs(self) -> bool:
        """Whether it does. Where it has ended by itself, what it left behind is ended too."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        return self._process is not None

    def close(self) -> None:
        """End it however it can be ended."""
        if self.members():
            self.kill()
        self._collect()

    def members(self) -> list[int]:
        """The living processes of the tree: all of the session that the first one leads."""
        if self._process is None:
            return []
        leader = self._process.pid
        return [pid for pid in living() if _session_of(pid) == leader]

    def last_output(self) -> str:
        """The end of its output, for messages."""
        return f"its output ends:\n{tail(self.output, 40)}"

    def _get(self, path: str, seconds: float = 5) -> urllib3.BaseHTTPResponse:
        try:
            return urllib3.request("GET", f"{self.page}{path}", retries=False, timeout=seconds)
        except urllib3.exceptions.HTTPError:
            return urllib3.HTTPResponse(b"", status=0)

    def _collect(self) -> None:
        if self._process is not None:
            self._process.wait(ENDED_WITHIN)
            self._process = None


def free_address() -> str:
    """Return an address on which a run can listen."""
    return f"127.0.0.1:{free_port_among(_PORTS)}"


def _send(members: list[int], number: signal.Signals) -> list[int]:
    """Send a signal to processes that may be gone, and return them."""
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return members


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours without settings that a developer's shell may hold, with the tested source first."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    ours.pop("DATABASE_URL", None)
    source = str(Path(headrace.__file__).parents[1])
    return {**ours, "PYTHONPATH": os.pathsep.join([source, *filter(None, [ours.get("PYTHONPATH")])]), **more}
