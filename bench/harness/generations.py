"""Measure how long a running Headrace takes to rebuild its indexes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from time import perf_counter

from harness.deployment import NAME, PREFIX, Deployment
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Mailbox, OrderKind, StateKey, StateStore
from headrace.state.orders import new_order
from headrace.tools.demo.shop import INDEXES

_LOOK_SECONDS = 0.05
_WITHIN = 3600.0


def built_anew(deployment: Deployment, indexes: Sequence[str] = INDEXES) -> float:
    """Order a new generation of each of `indexes`; the seconds until readers see the last one."""
    with closing(Client(Endpoint((deployment.sink,)))) as client:
        before = _served(client)
        begin = perf_counter()
        for index in indexes:
            Mailbox(client, StateKey(NAME, PREFIX)).submit(new_order(OrderKind.REINDEX, index))
        while any(before[index] == generation for index, generation in _served(client, indexes).items()):
            deployment.run.assert_running()
            assert perf_counter() - begin < _WITHIN, deployment.run.last_output()
            time.sleep(_LOOK_SECONDS)
    return perf_counter() - begin


def _served(client: Client, indexes: Sequence[str] = INDEXES) -> dict[str, str]:
    """The concrete index that readers see, by index."""
    state = StateStore(client, StateKey(NAME, PREFIX)).load()
    assert state is not None
    served = {index: state.served(index) for index in indexes}
    return {index: one.generation for index, one in served.items() if one is not None}
