"""Probe an executor: what it has installed, and which servers it reaches.

This module runs on executors where Headrace may be missing. So it is sent by value, and needs only the
standard library until it knows that Headrace can be imported. See `cluster_check`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import sys
from contextlib import closing
from importlib import metadata
from typing import Any

PACKAGES = ("headrace", "pyspark", "pyarrow", "numpy", "psycopg", "urllib3", "tenacity")
"""Packages that tasks import; the first two must have the same version everywhere."""

_TASKS = "headrace.pipeline.worker.worker"
_LENGTH = 300


def probe(modules: tuple[str, ...], connections: bytes = b"", kinds: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what is found on this machine, as plain data, in the same form for driver and executors.

    Args:
        modules: further ones that must be importable.
        connections: the pickled address of the database, endpoints of the sinks and secondary sinks; empty:
            none is tried.
        kinds: of sinks that must be installed.
    """
    lacks = _missing((_TASKS, *modules)) or _kindless(kinds)
    unreachable, away = _unreachable(connections) if connections and not lacks else ([], {})
    return {
        "host": socket.gethostname(),
        # An executor's workers are forked by one daemon, which tells executors on one host apart.
        "process": os.getppid(),
        "python": "{}.{}".format(*sys.version_info),
        "executable": sys.executable,
        "lacks": lacks,
        "versions": {name: _version(name) for name in PACKAGES},
        "unreachable": unreachable,
        "away": away,
    }


def _missing(modules: tuple[str, ...]) -> list[str]:
    """Say which modules cannot be imported, and why."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a user's module may do anything
            missing.append(f"{name} cannot be imported ({type(error).__name__}: {str(error)[:_LENGTH]})")
    return missing


def _kindless(kinds: tuple[str, ...]) -> list[str]:
    """Say which kinds of sinks are not installed."""
    from headrace.errors import HeadraceError  # noqa: PLC0415 - importable by now, not with this module
    from headrace.sinks.registry import find_sink  # noqa: PLC0415

    found = []
    for kind in kinds:
        try:
            find_sink(kind)
        except HeadraceError as error:
            found.append(error.cause)
    return found


def _version(package: str) -> str | None:
    """Return the version of what would be imported, which need not be installed as a package."""
    try:
        module = importlib.import_module(package) if package in PACKAGES[:2] else None
        return getattr(module, "__version__", None) or metadata.version(package)
    except (ImportError, metadata.PackageNotFoundError):
        return None


def _unreachable(connections: bytes) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return (kind, cause) of each server that does not answer, and the cause by secondary sink."""
    from headrace.errors import HeadraceError  # noqa: PLC0415
    from headrace.postgres.session import ReadSession  # noqa: PLC0415
    from headrace.sinks.opensearch import Client, Endpoint  # noqa: PLC0415
    from headrace.sinks.registry import open_sink  # noqa: PLC0415

    def look(endpoint: Endpoint) -> None:
        with closing(Client(endpoint, read_attempts=1)) as client:
            client.read("/")

    database, endpoints, secondary = pickle.loads(connections)  # noqa: S301 - our own driver wrote it
    found = []
    try:
        with ReadSession(database) as session:
            session.query("SELECT 1")
    except HeadraceError as error:
        found.append((error.kind.value, error.cause))
    for endpoint in endpoints:
        try:
            look(endpoint)
        except HeadraceError as error:
            found.append((error.kind.value, error.cause))
    away = {}
    for name, (kind, place) in secondary.items():
        try:
            if isinstance(place, Endpoint):
                look(place)
            else:
                open_sink(kind, place).close()
        except HeadraceError as error:
            away[name] = error.cause
    return found, away
