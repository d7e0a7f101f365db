"""Run `headrace` commands a second sooner: each in a process forked from one that has imported it.

`tests/integration/cli/test_surroundings.py` and every run that serves have Python start the command itself.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_MESSAGE_BYTES = 1 << 18


def run_command(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    *,
    answer: str = "",
    seconds: float = 200.0,
) -> subprocess.CompletedProcess[str]:
    """Run `headrace WORDS` in a folder, with this environment alone; it is ended after `seconds`."""
    code, code_end = os.pipe()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(answer.encode())
        given.seek(0)
        request = json.dumps([[*words], str(folder), dict(variables), seconds]).encode()
        socket.send_fds(_server(), [request], [given.fileno(), out.fileno(), err.fileno(), code_end])
        os.close(code_end)
        with os.fdopen(code) as ending:
            exit_code = int(ending.read())
        texts = []
        for printed in (out, err):
            printed.seek(0)
            texts.append(printed.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([*words], exit_code, *texts)


@functools.cache
def _server() -> socket.socket:
    """Start the process that commands are forked from; it ends when this one has closed its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        fd = theirs.fileno()
        subprocess.Popen([sys.executable, __file__, str(fd)], pass_fds=[fd], stdin=subprocess.DEVNULL)
    return ours


def _serve(requests: socket.socket) -> None:
    """Fork a process for each request; return in that process, ready for the command."""
    while True:
        request, fds, *_ = socket.recv_fds(requests, _MESSAGE_BYTES, 4)
        if not request:
            sys.exit()
        if not os.fork():
            requests.close()
            *streams, ending = fds
            if command := os.fork():
                status = os.waitpid(command, 0)[1]
                os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
                os._exit(0)
            os.close(ending)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            _prepare(*json.loads(request))
            return
        for fd in fds:
            os.close(fd)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _prepare(words: list[str], folder: str, variables: dict[str, str], seconds: float) -> None:
    """Make this process what a shell's would be."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    sys.path.insert(0, folder)
    sys.argv = ["headrace", *words]


if __name__ == "__main__":
    sys.path.pop(0)
    from headrace import cli
    from headrace.model.arrow_without_pandas import leave_out_pandas

    leave_out_pandas()
    for module in pkgutil.iter_modules(cli.__path__):
        importlib.import_module(f"headrace.cli.{module.name}")
    gc.collect()
    gc.freeze()  # or the first collection of each process copies all of it
    _serve(socket.socket(fileno=int(sys.argv[1])))
    cli.main()
