"""A real shop on real servers, and the real command line, for benchmarks."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.tools.demo.shop import create_shop, write_deployment
from support.driven_run import DrivenRun

NAME = "bench"
PREFIX = f"{NAME}_"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A shop, the deployment of it and its run, not yet started.

    Attributes:
        database: its URL.
        sink: OpenSearch's URL.
        config: the deployment file.
    """

    database: str
    sink: str
    config: Path
    run: DrivenRun


@contextlib.contextmanager
def shop(users: int, *, ready_within: float = 120.0) -> Iterator[Deployment]:
    """Both servers, durable as in production, with a shop of `users` users; all gone at the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with EmbeddedPostgres() as postgres, EmbeddedOpenSearch() as opensearch:
            url = postgres.create_database(NAME)
            took = create_shop(url, users=users)
            print(f"a shop with {users:,} users in {took:.1f} s", flush=True)
            config = write_deployment(folder / NAME, url, opensearch.url, PREFIX)
            run = DrivenRun(config, NAME, folder, ready_within=ready_within)
            try:
                yield Deployment(url, opensearch.url, config, run)
            finally:
                run.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
