"""Measure the time from a commit to its document at a fixed pace, with or without other writers."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import psycopg

from harness.deployment import PREFIX, Deployment
from headrace.postgres.connection import Connection, connect, execute

PACE_SECONDS = 0.2
PAUSE_SECONDS = 0.004
PATIENCE_SECONDS = 60.0
UPDATE = "UPDATE public.users SET name = $1 WHERE id = $2"

_LOAD = """
DO $$ BEGIN FOR i IN 1..100000000 LOOP
    UPDATE public.profiles SET newsletter = NOT newsletter WHERE id = 1 + i % {0};
    COMMIT;
    PERFORM pg_sleep({1});
END LOOP; END $$
"""


@contextlib.contextmanager
def loaded(deployment: Deployment, users: int, rate: int) -> Iterator[None]:
    """About `rate` other commits a second meanwhile, each of one user's document."""
    with connect(deployment.database) as connection:
        [(pid,)] = execute(connection, "SELECT pg_backend_pid()")
        writing = threading.Thread(
            target=_load, args=(connection, _LOAD.format(users // 2, 1 / rate)), daemon=True
        )
        writing.start()
        time.sleep(2)
        yield
        with connect(deployment.database) as other:
            execute(other, "SELECT pg_cancel_backend($1)", (pid,))
        writing.join()


def _load(connection: Connection, statement: str) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        execute(connection, statement)


def some_users(deployment: Deployment, count: int) -> list[int]:
    """Random users that have a document, each once."""
    with connect(deployment.database) as connection:
        rows = execute(connection, "SELECT id FROM public.users WHERE deleted_at IS NULL ORDER BY id")
    return random.Random(1).sample([row[0] for row in rows], count)


class Pace:
    """One update of each user, at a fixed pace, and the wait for its document."""

    def __init__(
        self,
        deployment: Deployment,
        users: Sequence[int],
        looking: Callable[[str], Callable[[int], str]] | None = None,
    ) -> None:
        self._looking = looking or reader
        self._deployment = deployment
        self._users = users
        self._token = f"named at {time.time_ns()}"

    def measure(self) -> list[float]:
        """The seconds from commit to document of each update."""
        committed: Queue[tuple[int, float]] = Queue()
        writer = threading.Thread(target=self._write, args=(committed,), name="writer", daemon=True)
        writer.start()
        read = self._looking(self._deployment.sink)
        latencies = []
        for _ in self._users:
            user, begin = committed.get(timeout=PATIENCE_SECONDS)
            while read(user) != self._token:
                if time.perf_counter() > begin + PATIENCE_SECONDS:
                    raise AssertionError(f"user {user} does not arrive\n{self._deployment.run.last_output()}")
                time.sleep(PAUSE_SECONDS)
            latencies.append(time.perf_counter() - begin)
        writer.join()
        return latencies

    def _write(self, committed: Queue[tuple[int, float]]) -> None:
        with connect(self._deployment.database, autocommit=False) as connection:
            begin = time.perf_counter()
            for number, user in enumerate(self._users):
                time.sleep(max(0.0, begin + number * PACE_SECONDS - time.perf_counter()))
                execute(connection, UPDATE, (self._token, user))
                committed.put((user, time.perf_counter()))
                connection.commit()


def reader(sink: str) -> Callable[[int], str]:
    """A function that reads a user's name from its document."""
    ask = _asking(sink)

    def read(user: int) -> str:
        name: str = ask(f"_doc/{user}?_source_includes=name")["_source"]["name"]
        return name

    return read


def searcher(sink: str) -> Callable[[int], str]:
    """A function that searches for a user's document and reads its name."""
    ask = _asking(sink)

    def read(user: int) -> str:
        [hit] = ask(f"_search?q=id:{user}&_source_includes=name")["hits"]["hits"]
        name: str = hit["_source"]["name"]
        return name

    return read


def _asking(sink: str) -> Callable[[str], Any]:
    """A function that asks the users' index; over the lightest client, to disturb little."""
    connection = http.client.HTTPConnection(urlsplit(sink).netloc, timeout=PATIENCE_SECONDS)

    def ask(what: str) -> Any:
        connection.request("GET", f"/{PREFIX}users/{what}")
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{what} has no answer: {data!r}")
        return json.loads(data)

    return ask
