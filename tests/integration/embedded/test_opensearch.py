"""The embedded OpenSearch: a real node that leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

from headrace.config.java import find_java
from headrace.embedded.jars import opensearch_jars
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import living, until
from headrace.errors import HeadraceError, Kind

_CHILD = """
import os, signal
from headrace.embedded.opensearch import EmbeddedOpenSearch
node = EmbeddedOpenSearch(heap="256m", short_lived=True).__enter__()
print(node._folder, node._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_it_indexes_and_keeps_data_and_port_over_a_kill(opensearch: EmbeddedOpenSearch) -> None:
    document = f"{opensearch.url}/kept/_doc/1"
    created = urllib3.request("PUT", document, json={"price": "12.50"})
    assert created.status == 201, created.data
    opensearch.kill()
    assert not opensearch.running
    opensearch.start()
    assert urllib3.request("GET", document).json()["_source"] == {"price": "12.50"}
    urllib3.request("DELETE", f"{opensearch.url}/kept")


@pytest.mark.long
def test_a_kill_of_its_starter_is_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    folder, pid = done.stdout.split()
    assert until(lambda: not living([int(pid)]), 10)
    assert until(lambda: not Path(folder).exists(), 10)


@pytest.mark.long
def test_a_repository_that_does_not_answer_is_said_soon(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "HEADRACE_MAVEN_REPOSITORY": "http://127.0.0.1:1/"}
    started = time.monotonic()
    with pytest.raises(HeadraceError) as unreachable:
        opensearch_jars(find_java(17), environ)
    assert unreachable.value.kind is Kind.DOWNLOAD
    assert time.monotonic() - started < 30
    assert list((tmp_path / "headrace").iterdir()) == []
