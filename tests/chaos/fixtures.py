"""A deployment that reaches its servers through proxies, which can be broken."""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil

from chaos.workload import Writers
from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import GenerationState, StateKey, StateStore
from headrace.state.orders import Mailbox, OrderKind, new_order
from support.http_proxy import Cut, HttpProxy, Request
from support.refusing_server import RefusingServer
from support.shop_oracle import actual_documents, differences
from support.tcp_proxy import TcpProxy

NAME = "chaos"
_READY_WITHIN = 300.0
_RIGHT_WITHIN = 180.0
_STRIKES_WITHIN = 90.0
_BEFORE_FORWARDING = 2.0
_SETTINGS = {"wal_writer_delay": "3s"}
"""Asynchronous commits are lost in a crash, where nobody hurries them to the disk."""
_SESSIONS = """
SELECT a.pid, a.application_name, a.state, a.wait_event, a.backend_start, left(a.query, 100), count(l)
FROM pg_stat_activity a LEFT JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'advisory'
WHERE a.datname = current_database() GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 5
"""


class FaultyDeployment:
    """The servers, a deployment that reaches them through proxies, and its writers.

    Attributes:
        front: before OpenSearch.
        line: before PostgreSQL, for the deployment; the writers need none.
        refusing: behind the line; it can answer in PostgreSQL's place.
        random: decides moments and targets.
    """

    def __init__(
        self,
        postgres: EmbeddedPostgres,
        opensearch: EmbeddedOpenSearch,
        proxies: tuple[HttpProxy, TcpProxy, RefusingServer],
        folder: Path,
        *,
        users: int,
        seed: int,
    ) -> None:
        self.postgres, self.opensearch = postgres, opensearch
        self.front, self.line, self.refusing = proxies
        self.random = random.Random(seed)
        self.shop = Shop(postgres.create_database(NAME), users)
        self.run = Headrace(folder, self.shop, opensearch.url, NAME)
        text = self.run.config.read_text().replace(opensearch.url, self.front.url)
        text = text.replace(self.shop.url, self.line.url(self.shop.url))
        self.run.config.write_text(f"{text}\n[backfill]\nrows_per_second = 600\n")
        self.writers = Writers(self.shop.url, 2, seed)

    def close(self) -> None:
        """End what it has started, the servers aside."""
        self.writers.end()
        self.run.close()

    @contextlib.contextmanager
    def reseeding(self) -> Iterator[None]:
        """Within this, the run rebuilds everything after a gap; it is stopped at both ends."""
        before = self.run.config.read_text()
        self.stop()
        self.run.config.write_text(before.replace("[source]", '[source]\non_gap = "reseed"'))
        yield
        self.stop()
        self.run.config.write_text(before)

    def stop(self) -> None:
        """Kill the run, where it runs."""
        if self.run.members():
            self.run.kill()

    def revive(self) -> None:
        """Everything that is down comes up, and nothing stands between any more."""
        self.front.heal()
        self.line.resume()
        self.opensearch.start()
        self.postgres.start()
        if not self.run.runs():
            self.run.start()

    def settle(self) -> list[str]:
        """Up again while the writers go on, then at rest and compared: what is wrong in any generation.

        Raises:
            AssertionError: it does not come up again.
        """
        end = time.monotonic() + _READY_WITHIN
        while True:
            self.revive()
            if self.run.is_ready() and not self.building():
                break
            if time.monotonic() > end:
                sessions = "\n".join(self._sessions())
                raise AssertionError(f"it does not come up again\n{sessions}\n{self.run.last_output()}")
            time.sleep(0.2)
        with self.writers.paused():
            expected = self.shop.expected()
            end = time.monotonic() + _RIGHT_WITHIN
            while found := self._compared(expected):
                if time.monotonic() > end:
                    return found
                time.sleep(0.2)
                self.revive()  # it may have ended only now
        return []

    def _sessions(self) -> list[str]:
        """The sessions of the database: whoever holds a lock that a start waits for is among them."""
        with connect(self.shop.url) as connection:
            return [str(row) for row in execute(connection, _SESSIONS)]

    def _compared(self, expected: dict[str, dict[str, dict[str, object]]]) -> list[str]:
        """The generation that readers see through each alias, and the others that are followed."""
        found = {index: self.run.documents(index) for index in expected}
        lines = [f"{index} {line}" for index in found for line in differences(expected[index], found[index])]
        for one in self.generations():
            if one.followed and not one.published:
                try:
                    actual = actual_documents(self.opensearch.url, one.generation)
                except LookupError:
                    if one in self.generations():
                        raise
                    continue  # it was dropped meanwhile
                lines += [f"{one.generation} {line}" for line in differences(expected[one.index], actual)]
        return lines if all(found.values()) else [*lines, "an alias serves nothing"]

    def generations(self) -> tuple[GenerationState, ...]:
        """All that the pipeline's state knows."""
        with closing(Client(Endpoint((self.opensearch.url,)))) as client:
            state = StateStore(client, StateKey(NAME, self.run.prefix)).load()
        return () if state is None else state.generations

    def building(self) -> list[str]:
        """The concrete names of what is being built; empty where the state cannot be read."""
        with contextlib.suppress(HeadraceError):
            return [one.generation for one in self.generations() if one.building and not one.frozen]
        return []

    def build(self, index: str) -> str:
        """Order a new generation of `index`; its concrete name, as soon as it is being built.

        Raises:
            AssertionError: it is not.
        """
        with closing(Client(Endpoint((self.opensearch.url,)))) as client:
            Mailbox(client, StateKey(NAME, self.run.prefix)).submit(new_order(OrderKind.REINDEX, index))
        assert until(lambda: bool(self.building()), _STRIKES_WITHIN), (
            f"nothing is built\n{self.run.last_output()}"
        )
        return self.building()[0]

    def at(self, moment: Callable[[Request], bool], act: Callable[[], None], then: Cut | None) -> bool:
        """Do `act` once, when the deployment first sends such a request to OpenSearch.

        The request waits for it, for a while; `then` says what becomes of it.

        Returns:
            Whether there was one, and `act` was done.
        """
        once, over = threading.Lock(), threading.Event()

        def strike() -> None:
            try:
                act()
            finally:
                over.set()

        def spoil(request: Request) -> Cut | None:
            if not moment(request) or not once.acquire(blocking=False):
                return None
            threading.Thread(target=strike).start()
            over.wait(_BEFORE_FORWARDING)
            return then

        self.front.spoil = spoil
        struck = over.wait(_STRIKES_WITHIN)
        self.front.heal()
        return struck

    def at_its_bulk(self, generation: str, act: Callable[[], None], then: Cut | None = None) -> bool:
        """`at` a bulk that writes to this concrete index."""
        name = generation.encode()
        return self.at(lambda one: one.target.startswith("/_bulk") and name in one.body, act, then)

    def at_its_swap(self, act: Callable[[], None], then: Cut | None = None) -> bool:
        """`at` the swap of an alias."""
        return self.at(lambda one: one.target.startswith("/_aliases"), act, then)

    def processes(self, words: str) -> list[psutil.Process]:
        """The processes of the run's tree with these words in their command."""
        found = []
        for pid in self.run.members():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if words in " ".join(process.cmdline()):
                    found.append(process)
        return found


@contextlib.contextmanager
def open_deployment(users: int, seed: int) -> Iterator[FaultyDeployment]:
    """Servers of its own and a deployment that is backfilled and right."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder,
        EmbeddedPostgres(durable=False, settings=_SETTINGS) as postgres,
        EmbeddedOpenSearch() as opensearch,
        HttpProxy(opensearch.url) as front,
        RefusingServer(postgres.url) as refusing,
        TcpProxy.before(refusing.url) as line,
    ):
        proxies = front, line, refusing
        here = FaultyDeployment(postgres, opensearch, proxies, Path(folder), users=users, seed=seed)
        try:
            here.run.start()
            found = here.settle()
            assert not found, found
            yield here
        finally:
            here.close()
