"""A Spark Connect server: a process of its own, in whose JVM a client can touch nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import headrace
from headrace.config.java import spark_java_home
from headrace.embedded.processes import GuardedProcess, free_port, port_is_free, tail, until
from headrace.spark.interpreter import worker_python
from headrace.spark.settings import JAVA_OPTIONS

_READY_WITHIN = 60.0
_HOME = Path(pyspark.__file__).parent
_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""While this stands in the environment, PySpark's functions make expressions for a server."""


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """One server.

    Attributes:
        address: where clients connect.
        ui: the address of its web pages.
        log: what it and its Python processes print.
        events: the folder of its event log.
    """

    address: str
    ui: str
    log: Path
    events: Path


@contextmanager
def connect_server(
    folder: Path, settings: Mapping[str, str], jars: Sequence[Path] = ()
) -> Iterator[ConnectServer]:
    """A server that knows nothing of Headrace but where Python finds it, with its pages and its event log."""
    port, ui = free_port(), free_port()
    log, events = folder / "server.log", folder / "events"
    events.mkdir()
    given = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.port": str(ui),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        **settings,
    }
    command = [
        *(str(_HOME / "bin/spark-submit"), "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for name, value in given.items() for word in ("--conf", f"{name}={value}")),
        *(("--jars", ",".join(map(str, jars))) if jars else ()),
        "spark-internal",
    ]
    source = str(Path(headrace.__file__).parents[1])
    search_path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_HOME": str(_HOME),
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": worker_python(folder, {"PYTHONPATH": search_path}),
        "PYTHONPATH": search_path,
    }
    process = GuardedProcess(command, log=log, environment=environment)
    try:
        assert until(lambda: not port_is_free(port) or not process.running, _READY_WITHIN), tail(log)
        assert process.running, tail(log)
        yield ConnectServer(f"sc://127.0.0.1:{port}", f"http://127.0.0.1:{ui}", log, events)
    finally:
        process.kill()


@contextmanager
def connected(server: ConnectServer) -> Iterator[SparkSession]:
    """A client's session, also where this process has a Spark of its own."""
    from pyspark.sql.connect.session import SparkSession as Client  # noqa: PLC0415 - only where it is asked for

    kept = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    session = Client.builder.remote(server.address).create()
    try:
        yield session  # type: ignore[misc]
    finally:
        session.stop()
        if kept is None:
            del os.environ[_MODE]
