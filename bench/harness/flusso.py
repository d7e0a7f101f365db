"""Measure the peer, flusso, on the same servers, where its program is here.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import urllib3

from harness.deployment import PREFIX, Deployment
from headrace.demo.shop import INDEXES, write_deployment
from headrace.embedded.processes import GuardedProcess, free_port, tail
from headrace.postgres.connection import connect, execute

VERSION = "0.15.1"
MEASURED = {"seed": 783.0, "items": 790.0, "users": 2_150.0}
"""Its changes a second with this shop on a machine of two cores: what counts where it is not here."""

_NAME = "peer"
_PREFIX = f"{_NAME}_"
_OURS_ALONE = re.compile(r"^(replica_identity|number_of_replicas) = .*\n", re.MULTILINE)
_JSON = re.compile(r"^ *- json: (\w+).*\n(?: *column: .*\n)? *required: .*\n", re.MULTILINE)
"""Its own mapping refuses what is in such a field; without them its documents are smaller than ours."""

_LOOK_SECONDS = 0.1
_WITHIN = 900.0
_FILLED_WITHIN = 3600.0
_STILL_SECONDS = 3.0
_ENDED_WITHIN = 30.0


def program() -> Path | None:
    """Its file; None: it is not on this machine."""
    named = os.environ.get("FLUSSO") or shutil.which("flusso") or Path.home() / ".cargo" / "bin" / "flusso"
    return Path(named) if Path(named).is_file() else None


class Flusso:
    """A running flusso with the three indexes of a shop, which follows what is committed from now on.

    Args:
        left_out: fields that its documents do not have.
    """

    def __init__(
        self, deployment: Deployment, process: GuardedProcess, log: Path, left_out: Iterable[str]
    ) -> None:
        self._deployment = deployment
        self._process = process
        self._log = log
        self._pool = urllib3.PoolManager()
        self._seen = {index: set[int]() for index in INDEXES}
        self._filled = dict.fromkeys(INDEXES, -1)
        self._left_out = frozenset(left_out)

    def fill(self) -> None:
        """Copy the deployment's documents into its indexes.

        So that a change replaces a document there too, nested ones and all, as in the deployment's own.
        """
        deadline = perf_counter() + _WITHIN
        while not all(self._exists(index) for index in INDEXES):
            self._wait(deadline)
        excluded = sorted(pattern for name in self._left_out for pattern in (name, f"*.{name}"))
        for index in INDEXES:
            body = {
                "source": {"index": f"{PREFIX}{index}", "_source": {"excludes": excluded}},
                "dest": {"index": f"{_PREFIX}{index}"},
            }
            target = f"{self._deployment.sink}/_reindex?refresh=true&wait_for_completion=false"
            task = self._pool.request("POST", target, json=body).json()["task"]
            done = self._done(task, deadline)
            assert done.get("created") == done.get("total"), done
            self._filled[index] = self._last_write(index)

    def until_ready(self) -> None:
        """Wait until a change that is made now becomes a document."""
        with connect(self._deployment.database) as connection:
            [(one,)] = execute(connection, "SELECT max(id) FROM public.products WHERE NOT hidden")
            deadline = perf_counter() + _WITHIN
            while not self._count_since("products"):
                execute(connection, "UPDATE public.products SET stock = stock WHERE id = $1", (one,))
                self._wait(deadline)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop its process (SIGSTOP) until the context is left."""
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)

    def until_written(self, touched: Mapping[str, Iterable[int]]) -> float:
        """The time (s, `perf_counter`) when the last of these documents was written."""
        for index, ids in touched.items():
            self._seen[index].update(ids)
        return self._until_still(
            lambda: all(self._count_since(index) >= len(self._seen[index]) for index in touched), _WITHIN
        )

    def until_filled(self, documents: int) -> float:
        """The time (s, `perf_counter`) when its indexes held so many documents."""
        return self._until_still(lambda: sum(map(self._count_since, INDEXES)) >= documents, _FILLED_WITHIN)

    def _until_still(self, complete: Callable[[], bool], within: float) -> float:
        """The time of the last write, once there was none for a while and all is there.

        Writes are counted without a refresh, which would cost the peer time.
        """
        deadline = perf_counter() + within
        written, since = -1, perf_counter()
        while True:
            if (now := self._written()) != written:
                written, since = now, perf_counter()
            elif perf_counter() - since > _STILL_SECONDS:
                if complete():
                    return since
                written = -1
            self._wait(deadline)

    def _written(self) -> int:
        names = ",".join(f"{_PREFIX}{index}" for index in INDEXES)
        target = f"{self._deployment.sink}/{names}/_stats/indexing?ignore_unavailable=true"
        found = self._pool.request("GET", target).json()
        return int(found["_all"]["primaries"].get("indexing", {}).get("index_total", 0))

    def _wait(self, deadline: float) -> None:
        assert perf_counter() < deadline, f"flusso: {tail(self._log)}"
        assert self._process.running, f"flusso ended: {tail(self._log)}"
        time.sleep(_LOOK_SECONDS)

    def _done(self, task: str, deadline: float) -> Mapping[str, Any]:
        """What a task of the cluster says at its end; at its own request it says more than a client takes."""
        while True:
            found = self._pool.request("GET", f"{self._deployment.sink}/_tasks/{task}").json()
            if found["completed"]:
                said: Mapping[str, Any] = found.get("response") or found["error"]
                return said
            self._wait(deadline)

    def _exists(self, index: str) -> bool:
        return self._pool.request("HEAD", f"{self._deployment.sink}/{_PREFIX}{index}").status == 200

    def _last_write(self, index: str) -> int:
        target = f"{self._deployment.sink}/{_PREFIX}{index}/_stats?level=shards"
        [(_, found)] = self._pool.request("GET", target).json()["indices"].items()
        [shard] = (copies[0] for copies in found["shards"].values())
        return int(shard["seq_no"]["max_seq_no"])

    def _count_since(self, index: str) -> int:
        """The documents that were written since the index was filled."""
        target = f"{self._deployment.sink}/{_PREFIX}{index}"
        self._pool.request("POST", f"{target}/_refresh")
        query = {"query": {"range": {"_seq_no": {"gt": self._filled[index]}}}}
        return int(self._pool.request("POST", f"{target}/_count", json=query).json().get("count", 0))


def seeded(deployment: Deployment, documents: int) -> float | None:
    """The seconds that it takes for all `documents` of a shop, from its start; None where it is not here."""
    begin = perf_counter()
    with _running(deployment) as peer:
        return None if peer is None else peer.until_filled(documents) - begin


@contextlib.contextmanager
def flusso(deployment: Deployment) -> Iterator[Flusso | None]:
    """Run it on the servers of this deployment; None where it is not here."""
    with _running(deployment, "--skip-backfill") as peer:
        if peer is not None:
            peer.fill()
            peer.until_ready()
        yield peer


@contextlib.contextmanager
def _running(deployment: Deployment, *more: str) -> Iterator[Flusso | None]:
    file = program()
    if file is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made:
        folder = Path(made)
        ours = write_deployment(folder, deployment.database, deployment.sink, _PREFIX)
        config = folder / "flusso.toml"
        config.write_text(_OURS_ALONE.sub("", ours.read_text()))
        left_out: set[str] = set()
        for schema in folder.glob("*.schema.yml"):
            text = schema.read_text()
            left_out.update(_JSON.findall(text))
            schema.write_text(_JSON.sub("", text))
        log = folder / "flusso.log"
        words = ["run", "--config", str(config), "--slot", _NAME, "--publication", _NAME, *more]
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        words += ["--public-address", addresses[0], "--private-address", addresses[1]]
        process = GuardedProcess([str(file), *words], log=log)
        try:
            yield Flusso(deployment, process, log, left_out)
        finally:
            process.signal(signal.SIGTERM)
            if not process.wait(_ENDED_WITHIN):
                process.kill()
