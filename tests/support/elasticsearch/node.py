"""One node of Elasticsearch on a free port.

The repository lacks the modules that answer `GET /` and `_delete_by_query`, analyse text, map `scaled_float`;
`StandIns.java` does what Headrace needs of them. So ingest pipelines, ICU and rounding are not shown here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from headrace.config.java import find_java
from headrace.embedded.jars import Jar, cached_jars, parse_line
from headrace.embedded.processes import GuardedProcess, free_port
from headrace.embedded.server import EmbeddedServer
from headrace.errors import HeadraceError, Kind

ELASTICSEARCH_8, ELASTICSEARCH_9 = "8.19.4", "9.2.0"

_HERE = Path(__file__).parent
_JAVA_MINIMUM = 21
_TRANSPORT = "transport-netty4"
_MODULES = {_TRANSPORT: "org.elasticsearch.transport.netty4.Netty4Plugin", "stand-ins": "standins.StandIns"}
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@contextlib.contextmanager
def elasticsearch(version: str) -> Iterator[ElasticsearchNode]:
    """Run a node; skip the test where its jars, or a Java for it, are not to be had."""
    try:
        node = ElasticsearchNode(version)
    except HeadraceError as error:
        if error.kind not in (Kind.DOWNLOAD, Kind.DEPENDENCY):
            raise
        pytest.skip(f"no Elasticsearch {version}: {error.cause}")
    with node:
        yield node


class ElasticsearchNode(EmbeddedServer):
    """An Elasticsearch node without security on a free loopback port, as a context manager.

    Raises:
        HeadraceError: DEPENDENCY, DISK or DOWNLOAD.
    """

    def __init__(self, version: str) -> None:
        self._java = find_java(_JAVA_MINIMUM)
        lines = (_HERE / f"elasticsearch-{version}.txt").read_text().splitlines()
        self._pinned = [parse_line(line) for line in lines if not line.startswith("#")]
        self._version = version
        self._jars = cached_jars(f"elasticsearch-{version}", self._pinned, self._java, os.environ)
        self._http = urllib3.PoolManager(retries=False, timeout=5.0)
        super().__init__(Path(tempfile.mkdtemp(prefix="headrace-elasticsearch-")).resolve())

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
        self._end(signal.SIGTERM, 30)

    def close(self) -> None:
        """Stop the node and remove its folder; idempotent."""
        super().close()
        self._http.clear()

    def _prepare(self) -> None:
        for name in ("config", "plugins", "tmp", "lib", *(f"modules/{module}" for module in _MODULES)):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "config/log4j2.properties").write_text(_LOGGING)
        (self._folder / "config/elasticsearch.yml").touch()
        for jar in self._pinned:
            if jar.artifact != "ecj":
                place = f"modules/{_TRANSPORT}" if self._is_of_transport(jar) else "lib"
                (self._folder / place / jar.file).symlink_to(self._jars / jar.file)
        for name, plugin in _MODULES.items():
            (self._folder / "modules" / name / "plugin-descriptor.properties").write_text(
                f"name={name}\ndescription={name}\nversion={self._version}\njava.version=17\n"
                f"elasticsearch.version={self._version}\nclassname={plugin}\nextended.plugins=\n"
            )
        self._compile()

    def _is_of_transport(self, jar: Jar) -> bool:
        return jar.artifact == _TRANSPORT or jar.group == "io.netty"

    def _compile(self) -> None:
        classes = self._folder / "classes"
        [compiler] = self._jars.glob("ecj-*.jar")
        command = [
            *(str(self._java), "-jar", str(compiler), "-21", "-nowarn", "-proc:none"),
            *("-cp", ":".join(map(str, self._jars.glob("*.jar"))), "-d", str(classes)),
            *map(str, sorted(_HERE.glob("*.java"))),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"the stand-ins do not compile: {done.stderr}")
        with zipfile.ZipFile(self._folder / "modules/stand-ins/stand-ins.jar", "w") as archive:
            for file in (classes / "standins").iterdir():
                archive.write(file, f"standins/{file.name}")
        shutil.rmtree(classes / "standins")

    def _spawn(self) -> GuardedProcess:
        settings = {
            "node.name": "node",
            "cluster.name": self._folder.name,
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self._port,
            "transport.port": free_port(),
            "path.repo": self.snapshots,
            # a nearly full disk would make every index read-only
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        command = [
            *(str(self._java), "-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-XX:-UsePerfData", f"-Djava.io.tmpdir={self._folder / 'tmp'}", "-Dlog4j2.disable.jmx=true"),
            *("--enable-native-access=ALL-UNNAMED", "--add-modules=jdk.net"),
            *("-cp", f"{self._folder / 'classes'}:{self._folder / 'lib'}/*", "Launcher", str(self._folder)),
            *(f"{name}={value}" for name, value in settings.items()),
        ]
        return GuardedProcess(command, log=self._log, folder=self._folder)

    def _failure(self, output: str) -> HeadraceError:
        raise AssertionError(f"Elasticsearch {self._version} did not start: {output}")

    def _ready(self) -> bool:
        try:
            health = self._http.request("GET", f"{self.url}/_cluster/health").json()
        except (urllib3.exceptions.HTTPError, ValueError):
            return False
        return health.get("cluster_name") == self._folder.name and health["status"] in ("green", "yellow")
