"""Start a search node that does not know for some seconds what it has."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from headrace.embedded.opensearch import EmbeddedOpenSearch


@contextlib.contextmanager
def recovering(node: EmbeddedOpenSearch) -> Iterator[threading.Thread]:
    """Start a stopped node, which waits some seconds for a second one before it recovers its state."""
    node._settings |= {"gateway.expected_data_nodes": 2, "gateway.recover_after_time": "15s"}
    thread = threading.Thread(target=node.start)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
