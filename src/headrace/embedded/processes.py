"""Start, watch, stop and kill server processes, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from headrace.errors import HeadraceError, Kind

_POLL = 0.02
_LOOPBACK = "127.0.0.1"


class GuardedProcess:
    """A server process under a guard that ends it when this process ends, even by kill -9.

    Args:
        command: the server's command, which must stay in the foreground.
        log: the file that its output is appended to.
        account: the user that it runs as; None: the user of this process.
        environment: the environment variables; None: those of this process.
        last_signal: the signal that the guard sends when this process has ended.
        folder: the folder that the guard then removes.

    Raises:
        HeadraceError: DEPENDENCY where the command cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        account: pwd.struct_passwd | None = None,
        environment: Mapping[str, str] | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
        folder: Path | None = None,
    ) -> None:
        uid, gid = (account.pw_uid, account.pw_gid) if account else (-1, -1)
        words = [str(int(last_signal)), str(uid), str(gid), str(folder or ""), *command]
        guard = Path(__file__).with_name("guard.py")
        with log.open("ab") as output:
            self._guard = subprocess.Popen(  # noqa: S603 (our own guard)
                [sys.executable, "-I", "-S", str(guard), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd="/",
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        try:
            with self._guard.stdout as line:
                self.pid = int(line.readline() or b"0")
        # An interrupt: without its pid only the guard, whose pipe closes, can end the server.
        except BaseException:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            raise
        if not self.pid:
            self._guard.wait()
            raise HeadraceError(Kind.DEPENDENCY, f"{command[0]} cannot be started: {last_line(log)}")

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._guard.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, if it runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until the server has ended; return whether it has."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        return True

    def kill(self) -> None:
        """Kill -9 the server and all its descendants; return when they have ended."""
        self.signal(signal.SIGSTOP)
        tree = [self.pid, *descendants(self.pid)] if self.running else []
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait(30)
        until(lambda: not living(tree), 30)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll `condition` for at most `seconds`; return whether it became true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free just now."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def free_port_among(ports: range) -> int:
    """Return a random free port of `ports`, so that two processes seldom get the same.

    Raises:
        HeadraceError: PORT_IN_USE where all are taken.
    """
    for port in random.sample(ports, len(ports)):
        if port_is_free(port):
            return port
    raise HeadraceError(Kind.PORT_IN_USE, f"all ports from {ports[0]} to {ports[-1]} are taken")


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def descendants(pid: int) -> list[int]:
    """Return the running processes that descend from `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for child, parent in _processes():
        children.setdefault(parent, []).append(child)
    tree = [pid]
    for ancestor in tree:
        tree.extend(children.get(ancestor, ()))
    return tree[1:]


def living(pids: Iterable[int] | None = None) -> set[int]:
    """Return which of `pids` run, or all running processes; a zombie does not count."""
    running = {pid for pid, _ in _processes()}
    return running if pids is None else running & set(pids)


def _processes() -> list[tuple[int, int]]:
    """Return (process id, parent's id) of every process that is not a zombie."""
    if Path("/proc/self/stat").exists():
        return [ids for entry in Path("/proc").glob("[0-9]*/stat") if (ids := _linux_process(entry))]
    listing = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return [(int(pid), int(parent)) for pid, parent, state in rows if not state.startswith("Z")]


def _linux_process(stat: Path) -> tuple[int, int] | None:
    try:
        state, parent, *_ = stat.read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None  # the process ended meanwhile
    return None if state in "ZX" else (int(stat.parent.name), int(parent))


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log; empty where there is no log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def last_line(log: Path) -> str:
    """Return the last non-empty line of a log."""
    return next((line.strip() for line in reversed(tail(log).splitlines()) if line.strip()), "no output")
