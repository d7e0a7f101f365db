"""Measure the peer, flusso, on the same servers, where its program is here.

`cargo install flusso-cli --version 0.15.1 --locked --no-default-features` brings it; FLUSSO names its file
where it is neither on the PATH nor in ~/.cargo/bin.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from harness.deployment import PREFIX, Deployment
from harness.peer import Peer
from headrace.embedded.processes import GuardedProcess, free_port
from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import INDEXES, write_deployment

VERSION = "0.15.1"

_NAME = "peer"
_PREFIX = f"{_NAME}_"
_OURS_ALONE = re.compile(r"^(replica_identity|number_of_replicas) = .*\n", re.MULTILINE)
_JSON = re.compile(r"^ *- json: (\w+).*\n(?: *column: .*\n)? *required: .*\n", re.MULTILINE)
"""Its own mapping refuses what is in such a field; without them its documents are smaller than ours."""
_DESCRIPTION = re.compile(r"^( *)description:.*\n(?:\1 +.*\n)*", re.MULTILINE)

_WITHIN = 900.0


def program() -> Path | None:
    """Its file; None: it is not on this machine."""
    named = os.environ.get("FLUSSO") or shutil.which("flusso") or Path.home() / ".cargo" / "bin" / "flusso"
    return Path(named) if Path(named).is_file() else None


class Flusso(Peer):
    """A running flusso with the three indexes of a shop, which follows what is committed from now on.

    Args:
        left_out: fields that its documents do not have.
    """

    def __init__(
        self, deployment: Deployment, process: GuardedProcess, log: Path, left_out: Iterable[str]
    ) -> None:
        super().__init__(deployment.sink, _PREFIX, process, log)
        self._database = deployment.database
        self._left_out = frozenset(left_out)

    def fill(self) -> None:
        """Copy the deployment's documents into its indexes.

        So that a change replaces a document there too, nested ones and all, as in the deployment's own.
        """
        deadline = perf_counter() + _WITHIN
        while not all(self.exists(index) for index in INDEXES):
            self.wait(deadline)
        excluded = sorted(pattern for name in self._left_out for pattern in (name, f"*.{name}"))
        for index in INDEXES:
            body = {
                "source": {"index": f"{PREFIX}{index}", "_source": {"excludes": excluded}},
                "dest": {"index": f"{_PREFIX}{index}"},
            }
            target = f"{self.sink}/_reindex?refresh=true&wait_for_completion=false"
            task = self.pool.request("POST", target, json=body).json()["task"]
            done = self._done(task, deadline)
            assert done.get("created") == done.get("total"), done
        self.count_from_now()

    def until_ready(self) -> None:
        """Wait until a change that is made now becomes a document."""
        with connect(self._database) as connection:
            [(one,)] = execute(connection, "SELECT max(id) FROM public.products WHERE NOT hidden")
            deadline = perf_counter() + _WITHIN
            while not self.count_since("products"):
                execute(connection, "UPDATE public.products SET stock = stock WHERE id = $1", (one,))
                self.wait(deadline)

    def _done(self, task: str, deadline: float) -> Mapping[str, Any]:
        """What a task of the cluster says at its end; at its own request it says more than a client takes."""
        while True:
            found = self.pool.request("GET", f"{self.sink}/_tasks/{task}").json()
            if found["completed"]:
                said: Mapping[str, Any] = found.get("response") or found["error"]
                return said
            self.wait(deadline)


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
            schema.write_text(_DESCRIPTION.sub("", _JSON.sub("", text)))
        log = folder / "flusso.log"
        words = ["run", "--config", str(config), "--slot", _NAME, "--publication", _NAME, *more]
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        words += ["--public-address", addresses[0], "--private-address", addresses[1]]
        peer = Flusso(deployment, GuardedProcess([str(file), *words], log=log), log, left_out)
        try:
            yield peer
        finally:
            peer.end()
