"""How fast is the peer on the same servers? flusso, where its program is here.

`cargo install flusso-cli --version 0.15.1 --locked --no-default-features` brings it; FLUSSO names its file
where it is neither on the PATH nor in ~/.cargo/bin.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter

import urllib3

from headrace.postgres.connection import connect, execute
from headrace.testing.processes import GuardedProcess, free_port, tail
from headrace.testing.shop import INDEXES, write_deployment
from support.deployment import Deployment

VERSION = "0.15.1"
MEASURED = {"single": 767.0, "items": 790.0, "users": 2_150.0}
"""Its changes a second with this shop on a machine of two cores: what counts where it is not here."""

_NAME = "peer"
_PREFIX = f"{_NAME}_"
_OURS_ALONE = re.compile(r"^(replica_identity|number_of_replicas) = .*\n", re.MULTILINE)
_JSON = re.compile(r"^ *- json: .*\n( *column: .*\n)? *required: .*\n", re.MULTILINE)
"""Its own mapping refuses what is in such a field; without them its documents are smaller than ours."""

_LOOK_SECONDS = 0.1
_WITHIN = 900.0
_ENDED_WITHIN = 30.0


def program() -> Path | None:
    """Its file; None: it is not on this machine."""
    named = os.environ.get("FLUSSO") or shutil.which("flusso") or Path.home() / ".cargo" / "bin" / "flusso"
    return Path(named) if Path(named).is_file() else None


class Flusso:
    """A running flusso with the three indexes of a shop, which follows what is committed from now on.

    Its indexes are empty at first: a document appears in them once a change touches it.
    """

    def __init__(self, deployment: Deployment, process: GuardedProcess, log: Path) -> None:
        self._deployment = deployment
        self._process = process
        self._log = log
        self._pool = urllib3.PoolManager()
        self._seen = {index: set[int]() for index in INDEXES}

    def until_ready(self) -> None:
        """Wait until a change that is made now becomes a document."""
        with connect(self._deployment.database) as connection:
            [(one,)] = execute(connection, "SELECT max(id) FROM public.products WHERE NOT hidden")
            deadline = perf_counter() + _WITHIN
            while not self._count("products"):
                execute(connection, "UPDATE public.products SET stock = stock WHERE id = $1", (one,))
                self._wait(deadline)

    def until_written(self, touched: Mapping[str, Iterable[int]]) -> float:
        """The time (s, `perf_counter`) when every one of these documents was there.

        A document of an earlier call counts as there, so the last changes may come after: the peer is never
        measured slower than it is.
        """
        for index, ids in touched.items():
            self._seen[index].update(ids)
        deadline = perf_counter() + _WITHIN
        while any(self._count(index) < len(self._seen[index]) for index in touched):
            self._wait(deadline)
        return perf_counter()

    def _wait(self, deadline: float) -> None:
        assert perf_counter() < deadline, f"flusso: {tail(self._log)}"
        assert self._process.running, f"flusso ended: {tail(self._log)}"
        time.sleep(_LOOK_SECONDS)

    def _count(self, index: str) -> int:
        target = f"{self._deployment.sink}/{_PREFIX}{index}"
        self._pool.request("POST", f"{target}/_refresh")
        return int(self._pool.request("GET", f"{target}/_count").json().get("count", 0))


@contextlib.contextmanager
def flusso(deployment: Deployment) -> Iterator[Flusso | None]:
    """Run it on the servers of this deployment; None where it is not here."""
    file = program()
    if file is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made:
        folder = Path(made)
        ours = write_deployment(folder, deployment.database, deployment.sink, _PREFIX)
        config = folder / "flusso.toml"
        config.write_text(_OURS_ALONE.sub("", ours.read_text()))
        for schema in folder.glob("*.schema.yml"):
            schema.write_text(_JSON.sub("", schema.read_text()))
        log = folder / "flusso.log"
        words = ["run", "--config", str(config), "--slot", _NAME, "--publication", _NAME, "--skip-backfill"]
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        words += ["--public-address", addresses[0], "--private-address", addresses[1]]
        process = GuardedProcess([str(file), *words], log=log)
        try:
            one = Flusso(deployment, process, log)
            one.until_ready()
            yield one
        finally:
            process.signal(signal.SIGTERM)
            if not process.wait(_ENDED_WITHIN):
                process.kill()
