"""How soon is a committed row a readable document? `python bench/latency.py [--quick]`.

Single-row updates at a fixed pace against a running Headrace; the clock of each starts before its COMMIT is
sent and stops when GET _doc shows the new value. One thread commits and another looks at the oldest document
that is missing, so a slow one does not delay the next commit, and cannot hide what it would have waited for.
Then until a search finds it, with the refresh interval as it is by default, and the first beside 500 other
commits a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

import urllib3

from harness import report
from harness.deployment import PREFIX, Deployment, shop
from harness.pace import (
    PACE_SECONDS,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    UPDATE,
    Pace,
    loaded,
    reader,
    searcher,
    some_users,
)
from headrace.assembly.assembler import Assembler
from headrace.catalog import read_catalog
from headrace.pipeline.project import open_project
from headrace.postgres.connection import connect, execute
from headrace.postgres.session import ReadSession

BARS_MS = {
    "readable": {"p50": 45.0, "p99": 150.0},
    "searchable": {"p50": 90.0, "p99": 200.0},
    "loaded": {"p99": 1000.0},
}
LOAD = 500
"""Other commits a second."""
WARM_UP = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=500, help="size of the shop (500)")
    parser.add_argument("--updates", type=int, default=None, help="how many are measured (100)")
    parser.add_argument("--quick", action="store_true", help="30 updates")
    given = parser.parse_args()
    updates = given.updates or (30 if given.quick else 100)
    slowness = report.machine()
    with shop(given.users) as deployment:
        users = some_users(deployment, WARM_UP + updates)
        deployment.run.start()
        deployment.run.wait_ready()
        warming_up = Pace(deployment, users[:WARM_UP]).measure()
        measured = users[WARM_UP:]
        latencies = {"readable": Pace(deployment, measured).measure()}
        Pace(deployment, users[:WARM_UP], searcher).measure()
        latencies["searchable"] = Pace(deployment, measured, searcher).measure()
        with loaded(deployment, given.users, LOAD):
            latencies["loaded"] = Pace(deployment, measured).measure()
        slowness = (slowness + report.machine()) / 2
        deployment.run.terminate()
        refreshed(deployment, "10ms")
        cold = ("readable, just started", warming_up[:30])
        shown = [(f"commit → document {case}", found) for case, found in latencies.items()]
        report.times([*shown, cold, *_parts(deployment, users[0])])
    print(f"{updates} updates {1000 * PACE_SECONDS:.0f} ms apart, after {WARM_UP} of warm-up: Java compiles")
    held = []
    for case, bars in BARS_MS.items():
        for name, bar in bars.items():
            taken = 1000 * report.quantile(latencies[case], int(name[1:]))
            held.append(report.result(f"latency.{case}_{name}", slowness * bar / taken, 1.0))
    sys.exit(not all(held))


def refreshed(deployment: Deployment, interval: str) -> None:
    """Make what is written searchable so often."""
    body = json.dumps({"index": {"refresh_interval": interval}})
    target = f"{deployment.sink}/{PREFIX}users/_settings"
    answer = urllib3.request("PUT", target, body=body, headers={"content-type": "application/json"})
    assert answer.status == 200, answer.data


def _parts(deployment: Deployment, user: int) -> list[tuple[str, Sequence[float]]]:
    """What cannot be saved, each alone and Headrace stopped."""
    project = open_project(deployment.config, os.environ)
    spec = project.specs["users"]
    pool = urllib3.connectionpool.connection_from_url(deployment.sink, maxsize=1)
    version = pool.request("GET", f"/{PREFIX}users/_doc/{user}").json()["_version"]
    with connect(deployment.database) as connection, ReadSession(deployment.database) as session:
        assembler = Assembler(session, spec, read_catalog(session, spec.tables()))
        update = partial(execute, connection, UPDATE, ("bare", user))
        assemble = partial(_assemble, assembler, user)
        action = {"_index": f"{PREFIX}users", "_id": str(user), "version": version}
        line = json.dumps({"index": {**action, "version_type": "external_gte"}}).encode()
        body = b"".join((line, b"\n", assemble(), b"\n"))
        bulk = partial(
            pool.request, "POST", "/_bulk", body=body, headers={"content-type": "application/json"}
        )
        search = searcher(deployment.sink)
        names = (f"bare {number}" for number in itertools.count())

        def found() -> None:
            document = json.dumps(json.loads(assemble()) | {"name": (name := next(names))}).encode()
            headers = {"content-type": "application/json"}
            pool.request("POST", "/_bulk", body=b"".join((line, b"\n", document, b"\n")), headers=headers)
            begin = time.perf_counter()
            while search(user) != name:
                assert time.perf_counter() < begin + PATIENCE_SECONDS, f"no search finds {name!r}"
                time.sleep(PAUSE_SECONDS)

        return [
            ("  a _bulk until a search finds it", report.timed(found, 20)),
            ("  an UPDATE with its commit", report.timed(update, 50)),
            ("  assembling one document", report.timed(assemble, 50)),
            ("  a _bulk of one document", report.timed(bulk, 50)),
            ("  a GET of one document", report.timed(partial(reader(deployment.sink), user), 50)),
        ]


def _assemble(assembler: Assembler, user: int) -> bytes:
    [operation] = assembler.assemble([(str(user),)], 0)
    assert operation.body is not None
    return operation.body


if __name__ == "__main__":
    main()
