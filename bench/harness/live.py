"""Measure how long a running Headrace takes until what was committed is durable in the documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import urllib3

from harness.deployment import NAME, PREFIX, Deployment
from headrace.model.lsn import Lsn, parse_lsn
from headrace.postgres.connection import connect, execute

_TOUCHED = {
    "order_items": {
        "orders": "SELECT DISTINCT order_id FROM public.order_items WHERE id = ANY ('{{{}}}')",
        "users": "SELECT DISTINCT u.id FROM public.order_items i JOIN public.orders o ON o.id = i.order_id "
        "JOIN public.users u ON u.id = o.user_id WHERE u.deleted_at IS NULL AND i.id = ANY ('{{{}}}')",
    },
    "users": {"users": "SELECT id FROM public.users WHERE deleted_at IS NULL AND id = ANY ('{{{}}}')"},
}
_CHANGE_ITEM = "UPDATE public.order_items SET quantity = quantity % 9 + 1 WHERE id = i"
_WRITERS = 2
_LOOK_SECONDS = 0.05
"""Each look is a request that the cluster answers beside its work."""
_WITHIN = 600.0


def written(deployment: Deployment) -> Lsn:
    """Where the log ends now (bytes)."""
    with connect(deployment.database) as connection:
        [(position,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    return int(position)


def until_applied(deployment: Deployment, end: Lsn) -> float:
    """The time (s, `perf_counter`) when every document of the changes before `end` was durable.

    A change after `end` is made, so that what is applied passes it at once.
    """
    with connect(deployment.database) as connection:
        execute(
            connection,
            "UPDATE public.profiles SET bio = bio WHERE id = (SELECT min(id) FROM public.profiles)",
        )
    return _until(deployment, lambda: _applied(deployment) >= end)


def until_worked_off(deployment: Deployment) -> float:
    """The time (s, `perf_counter`) when nothing was deferred any more."""
    index = f"{deployment.sink}/{PREFIX}headrace_deferred"
    _until(deployment, lambda: _count(index) > 0)
    return _until(deployment, lambda: _count(index) == 0)


def _until(deployment: Deployment, condition: Callable[[], bool]) -> float:
    deadline = perf_counter() + _WITHIN
    while not condition():
        deployment.run.assert_running()
        assert perf_counter() < deadline, deployment.run.last_output()
        time.sleep(_LOOK_SECONDS)
    return perf_counter()


def _applied(deployment: Deployment) -> Lsn:
    target = f"{deployment.sink}/{PREFIX}headrace_meta/_doc/{NAME}?_source=applied"
    answer = _pool.request("GET", target)
    if answer.status == _BUSY:  # no room for an answer just now; headrace, too, asks again
        return 0
    return parse_lsn(answer.json()["_source"]["applied"])


def _count(index: str) -> int:
    _pool.request("POST", f"{index}/_refresh")
    return int(_pool.request("GET", f"{index}/_count").json().get("count", 0))


_BUSY = 429
_pool = urllib3.PoolManager()


def each_alone(ids: Iterable[int], statement: str) -> str:
    """SQL that runs `statement`, which names the row `i`, once for each id, each in its own transaction."""
    listed = ",".join(str(one) for one in ids)
    return (
        f"DO $$ DECLARE i bigint; BEGIN FOREACH i IN ARRAY '{{{listed}}}'::bigint[] "
        f"LOOP {statement}; COMMIT; END LOOP; END $$"
    )


def change_items(deployment: Deployment, ids: Sequence[int]) -> float:
    """Change these order_items, each in a transaction of its own; how many seconds that took.

    Two sessions of the server write, without a client between.
    """
    begin = perf_counter()
    with ThreadPoolExecutor(_WRITERS) as threads:
        parts = [ids[number::_WRITERS] for number in range(_WRITERS)]
        list(threads.map(lambda part: _change_part(deployment, part), parts))
    return perf_counter() - begin


def _change_part(deployment: Deployment, ids: Sequence[int]) -> None:
    with connect(deployment.database) as connection:
        execute(connection, each_alone(ids, _CHANGE_ITEM))


def drain(deployment: Deployment, ids: Sequence[int]) -> float:
    """Change these order_items while the run is stopped (SIGSTOP); the seconds until it has written all."""
    deployment.run.suspend()
    change_items(deployment, ids)
    end = written(deployment)
    begin = perf_counter()
    deployment.run.resume()
    return until_applied(deployment, end) - begin


def ids_of(deployment: Deployment, sql: str) -> list[int]:
    """The first column."""
    with connect(deployment.database) as connection:
        return [row[0] for row in execute(connection, sql)]


def documents_of(deployment: Deployment, table: str, ids: Iterable[int]) -> dict[str, list[int]]:
    """The ids of the documents, by index, that these rows of a table are in."""
    listed = ",".join(str(one) for one in ids)
    return {index: ids_of(deployment, sql.format(listed)) for index, sql in _TOUCHED[table].items()}
