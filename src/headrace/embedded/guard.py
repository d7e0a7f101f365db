"""Run one server as a child process and end it when the starting process ends, for whatever reason.

This is a script that uses only the standard library. Its standard input is a pipe whose other end the starter
holds. When that pipe closes (also after a kill -9 of the starter) the script ends the server and removes its
folder. On Linux the kernel ends the server if this script is killed, and makes the server's orphans children
of this script, so that none stays as a zombie.

    guard.py LAST_SIGNAL UID GID FOLDER COMMAND…      (UID and GID -1: the starter's; FOLDER empty: none)

The script prints the server's process id as its only line; the server's output goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_GRACE = 5.0
_PULSE = 1.0


def process_control(option: int, value: int) -> None:
    """Call Linux' prctl; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def start(command: list[str], uid: int, gid: int) -> subprocess.Popen[bytes]:
    """Start the server in a process group of its own, as another user where `uid` is given."""
    return subprocess.Popen(  # noqa: S603 (the command comes from the starter)
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        process_group=0,
        preexec_fn=lambda: process_control(_PARENT_DEATH_SIGNAL, signal.SIGKILL),  # noqa: PLW1509 (one thread)
        user=None if uid < 0 else uid,
        group=None if uid < 0 else gid,
        extra_groups=None if uid < 0 else [],
    )


def watch(server: subprocess.Popen[bytes], starter: int) -> bool:
    """Wait until the server ends (True) or its starter does (False)."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while server.poll() is None:
        ready, _, _ = select.select([0, reading], [], [], _PULSE)
        if reading in ready:
            os.read(reading, 64)
        if (0 in ready and not os.read(0, 64)) or os.getppid() != starter:
            return False
    return True


def end(server: subprocess.Popen[bytes], last_signal: int) -> None:
    """Send the server a signal, and kill it if it does not end in time."""
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(last_signal)
    try:
        server.wait(_GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def collect_orphans() -> None:
    """Wait until the server's orphaned processes have ended too, within the grace period."""
    deadline = time.monotonic() + _GRACE
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def main(arguments: list[str]) -> int:
    """Guard one server; return its exit status (128 + n after signal n)."""
    last_signal, uid, gid, folder = int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]
    starter = os.getppid()
    process_control(_ADOPT_ORPHANS, 1)
    server = start(arguments[4:], uid, gid)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, lambda *_: None)  # not SIG_IGN, which a server would inherit
    os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    if not watch(server, starter):
        end(server, last_signal)
        collect_orphans()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        collect_orphans()
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
