"""Does the process that writes early end when it is told to, whatever its writes wait for?"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

_CHILD = """
import signal, sys
from headrace.catalog.table import Catalog
from headrace.datasources.shutdown import exit_on_sigterm
from headrace.pipeline.stream.early_writes import EarlyWriter
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work
from headrace.resolution import ResolutionPlan
from headrace.sinks.opensearch import Endpoint, WriterOptions
from headrace.state import StateKey

key, nothing = StateKey("slot", ""), ResolutionPlan({})
plan = DocumentsPlan({}, Catalog({}), nothing, {}, WriterOptions(), key, frozenset(), large_change=1)
work = Work(plan, Endpoints(sys.argv[1], Endpoint(("http://127.0.0.1:1",))))
writer = EarlyWriter(work.to_options())
exit_on_sigterm()
print("ready", flush=True)
signal.pause()
"""


def test_a_process_ends_although_an_early_write_waits_for_ever() -> None:
    """Spark ends the process that plans so; it must not outlive its run."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://nobody:x@127.0.0.1:{silent.getsockname()[1]}/db"
        child = subprocess.Popen([sys.executable, "-c", _CHILD, url], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            silent.settimeout(30)
            connection, _ = silent.accept()
            with connection:
                child.send_signal(signal.SIGTERM)
                assert child.wait(60) == 0
        finally:
            child.kill()
            child.communicate()
