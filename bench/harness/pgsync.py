"""Measure the peer PGSync on the same servers, where its package and a Redis can be had.

The package comes from the index that pip knows into an environment of its own, once; `redis-server` has to be
on the PATH. PGSync has no aggregates, filters, orders or limits of lists: its documents have fewer fields.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from harness.deployment import Deployment
from harness.peer import Peer
from headrace.embedded.processes import GuardedProcess, free_port, tail

VERSION = "7.3.0"

_SCHEMA = Path(__file__).with_suffix(".json")
_PREFIX = "pgsync_"
_LOOK_SECONDS = 0.1
_STARTED_WITHIN = 30.0


def seeded(deployment: Deployment, documents: int) -> float | None:
    """The seconds that it takes for `documents` of a shop, from its start; None where it is not here.

    The preparation of the database (`bootstrap`: triggers and slots) is left out.
    """
    with _running(deployment) as peer:
        begin = perf_counter()
        return None if peer is None else peer.until_filled(documents) - begin


@contextlib.contextmanager
def pgsync(deployment: Deployment, documents: int) -> Iterator[Peer | None]:
    """Run it on the servers of this deployment, filled with `documents`; None where it is not here."""
    with _running(deployment) as peer:
        if peer is not None:
            peer.until_filled(documents)
            peer.count_from_now()
        yield peer


@contextlib.contextmanager
def _running(deployment: Deployment) -> Iterator[Peer | None]:
    programs = _install()
    redis = shutil.which("redis-server")
    if programs is None or redis is None:
        missing = "its package" if programs is None else "redis-server"
        print(f"PGSync {VERSION} is left out: {missing} is not here")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made, _redis(redis, Path(made)) as port:
        environment = _settings(deployment, port, made)
        _bootstrap(programs, environment)
        log = Path(made) / "pgsync.log"
        command = [str(programs / "pgsync"), "--config", str(_SCHEMA), "--daemon"]
        process = GuardedProcess(command, log=log, environment=environment)
        peer = Peer(deployment.sink, _PREFIX, process, log)
        try:
            yield peer
        finally:
            peer.end()


def _install() -> Path | None:
    """Return the folder of its programs, installed where they are not; None where that fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "headrace" / f"pgsync-{VERSION}"
    programs = folder / "bin"
    if not (programs / "pgsync").exists():
        venv.create(folder, with_pip=True)
        install = [str(programs / "python"), "-m", "pip", "install", "--quiet", f"pgsync=={VERSION}"]
        if subprocess.run(install, check=False, capture_output=True).returncode:
            return None
    return programs


@contextlib.contextmanager
def _redis(program: str, folder: Path) -> Iterator[int]:
    """Run a Redis that keeps nothing; its port."""
    port, log = free_port(), folder / "redis.log"
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = GuardedProcess(words, log=log)
    try:
        deadline = perf_counter() + _STARTED_WITHIN
        while "Ready to accept connections" not in tail(log):
            assert perf_counter() < deadline, tail(log)
            time.sleep(_LOOK_SECONDS)
        yield port
    finally:
        process.kill()


def _settings(deployment: Deployment, redis_port: int, folder: str) -> dict[str, str]:
    return {
        **os.environ,
        "PG_URL": deployment.database,
        "REDIS_PORT": str(redis_port),
        "REDIS_HOST": "127.0.0.1",
        "OPENSEARCH": "true",
        "ELASTICSEARCH": "false",
        "ELASTICSEARCH_URL": deployment.sink,
        "CHECKPOINT_PATH": folder,
    }


def _bootstrap(programs: Path, environment: dict[str, str]) -> None:
    command = [str(programs / "bootstrap"), "--config", str(_SCHEMA)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
