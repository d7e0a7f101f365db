"""Measure both servers without Headrace: COPY of the same queries, `_bulk` of the same bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import Queue
from time import perf_counter
from typing import Any, Protocol

import urllib3

from harness.deployment import PREFIX, Deployment
from headrace.assembly.lowering import plan_document
from headrace.assembly.statement import keys_statement, range_parameters, range_statement
from headrace.catalog import Catalog
from headrace.model.names import CtidRange
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project, open_project
from headrace.postgres.connection import PINNED, connect
from headrace.postgres.quoting import literal
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import Client, Generation, Generations, mapping
from headrace.sinks.opensearch.documents import refresh
from headrace.snapshot.planning import plan_ranges

CONNECTIONS = 2
"""To either server, as many as Headrace has."""

BULK_BYTES = 5_000_000
RANGE_BYTES = 8 << 20
_WAITING = 8
KEYS = 1_000
VERSION = 1 << 62
"""Above every address of a log."""

_PREFIX = "bare_"
_HEADER, _FIELD = 19, 6
"""Of COPY's binary format: bytes before the first row, and before the text of a row of one column."""


class Worker(Protocol):
    """Does one piece of work after another on a connection of its own."""

    def __call__(self, one: Any, /) -> int:
        """Do one piece; a number that says how much it was."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One filling of indexes.

    Attributes:
        bytes: of bulk requests.
        copy: seconds until all was copied.
        bulk: seconds from then until all was written; of a filling, until a search finds it.
    """

    documents: int
    bytes: int
    copy: float
    bulk: float

    @property
    def rate(self) -> float:
        """Documents for each second."""
        return self.documents / (self.copy + self.bulk)


class BarePath:
    """Fills fresh indexes with the mappings and settings of the deployment's own."""

    def __init__(self, deployment: Deployment) -> None:
        self._database = deployment.database
        self._sink = deployment.sink
        project = open_project(deployment.config, os.environ)
        endpoints = project.resolve()
        with connect(endpoints.database) as connection:
            inspection = inspect(project, endpoints, connection, policy="ignore")
        self._project: Project = inspection.project
        self._catalog: Catalog = inspection.catalog
        self._client = Client(endpoints.sink)
        self._generations = Generations(self._client, _PREFIX)

    def fill(self, most_ranges: int | None = None) -> Pass:
        """Copy and bulk side by side, make the documents searchable, then delete.

        With `most_ranges` of each index only its first ranges. A bulk request leaves the documents in memory:
        an index whose readers are to find them still has to write its segments, so that counts here too.
        """
        with self._making(self._project.specs, self._create) as made:
            done = self._pass(made, lambda one: self._ranges(one, most_ranges), overlapped=True)
            begin = perf_counter()
            refresh(self._client, ",".join(generation.index for generation in made))
            return dataclasses.replace(done, bulk=done.bulk + perf_counter() - begin)

    def rewrite(self, chunks: Sequence[Mapping[str, Sequence[int]]]) -> list[Pass]:
        """Copy and bulk the documents of some keys of some indexes, one chunk after the other.

        They go into copies of the deployment's own indexes, which have these documents already. That is what
        changes cost a server: older copies, nested documents and all, have to go. Nothing may write to the
        deployment's indexes meanwhile.
        """
        with self._making(chunks[0], self._copy) as made:
            return [self._pass(made, partial(self._chunks, keys=keys)) for keys in chunks]

    @contextlib.contextmanager
    def _making(self, names: Iterable[str], make: Callable[[str], Generation]) -> Iterator[list[Generation]]:
        made = [make(name) for name in names]
        try:
            yield made
        finally:
            for generation in made:
                self._generations.drop(generation)

    def _pass(
        self,
        made: Sequence[Generation],
        rows: Callable[[Generation], Iterator[str]],
        *,
        overlapped: bool = False,
    ) -> Pass:
        statements = [_lines(generation, one) for generation in made for one in rows(generation)]
        bodies: Queue[bytes | None] = Queue(_WAITING if overlapped else 0)
        begin = perf_counter()
        with ThreadPoolExecutor(1) as side:
            sending = side.submit(self._send, bodies) if overlapped else None
            try:
                documents = sum(_with_each(statements, lambda: Copying(self._database, bodies)))
                copied = perf_counter()
            finally:
                for _ in range(CONNECTIONS):
                    bodies.put(None)
            sent = self._send(bodies) if sending is None else sending.result()
        return Pass(documents, sent, copied - begin, perf_counter() - copied)

    def _send(self, bodies: Queue[bytes | None]) -> int:
        """Send bodies until the end of them was told to each connection; how many bytes they had."""
        return sum(_with_each([bodies] * CONNECTIONS, lambda: Sending(self._sink)))

    def _create(self, name: str) -> Generation:
        spec, options = self._project.specs[name], self._project.primary.index_options(name)
        return self._generations.create(name, "0", mapping(spec, options))

    def _copy(self, name: str) -> Generation:
        """A copy of what the alias of `name` points at, by links to its files."""
        [source] = self._client.read(f"/_alias/{PREFIX}{name}").json()
        made = Generation(name, f"{_PREFIX}{name}_copy", "0", 0, "")
        self._client.call("PUT", f"/{source}/_settings", {"index.blocks.write": True})
        body = {"settings": {"index.blocks.write": None}, "aliases": {made.target: {"is_hidden": True}}}
        self._client.call("PUT", f"/{source}/_clone/{made.index}", body)
        self._client.call("PUT", f"/{source}/_settings", {"index.blocks.write": None})
        self._client.read(f"/_cluster/health/{made.index}?wait_for_status=yellow&timeout=60s")
        settings = self._client.read(f"/{made.index}/_settings").json()[made.index]["settings"]["index"]
        return dataclasses.replace(made, uuid=settings["uuid"])

    def _ranges(self, generation: Generation, most: int | None) -> Iterator[str]:
        """For each range of root rows, what reads its documents."""
        spec = self._project.specs[generation.name]
        with ReadSession(self._database) as session:
            ranges = plan_ranges(session, self._catalog[spec.table], RANGE_BYTES)
        plan = plan_document(spec, self._catalog)
        for part in ranges[:most]:
            yield _with_literals(range_statement(plan, part), part)

    def _chunks(self, generation: Generation, keys: Mapping[str, Sequence[int]]) -> Iterator[str]:
        """For each thousand of its keys, what reads their documents."""
        plan, own = plan_document(self._project.specs[generation.name], self._catalog), keys[generation.name]
        for first in range(0, len(own), KEYS):
            some = ",".join(str(key) for key in own[first : first + KEYS])
            yield keys_statement(plan).replace("$1::text[]", f"{literal('{' + some + '}')}::text[]")


def _lines(generation: Generation, rows: str) -> str:
    """A statement of one column: both lines of a bulk request for each document, ready to send."""
    fence = {"version": VERSION, "version_type": "external_gte"}
    action = json.dumps({"index": {"_index": generation.target, **fence, "_id": ""}})
    before, after = action[:-4], action[-2:] + "\n"
    start, middle, end = (literal(text) for text in (before, after, "\n"))
    line = f"{start} || to_json(id)::text || {middle} || body || {end}"
    return f"SELECT {line} FROM ({rows}) AS document (id, body) WHERE body IS NOT NULL"


def _with_literals(statement: str, part: CtidRange) -> str:
    """COPY takes no parameters."""
    values = range_parameters(part)
    return re.sub(r"\$(\d+)(?=::int8)", lambda match: literal(values[int(match[1]) - 1]), statement)


class Copying:
    """One connection that puts whole bulk bodies into `bodies`."""

    def __init__(self, url: str, bodies: Queue[bytes | None]) -> None:
        self._connection = connect(url)
        for name, value in PINNED.items():
            self._connection.execute(f"SET {name} = {literal(value)}")
        self._bodies = bodies

    def __call__(self, statement: str) -> int:
        """Run one statement; how many documents it gave."""
        lines: list[bytes] = []
        size = documents = 0
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY ({statement}) TO STDOUT (FORMAT binary)") as copy,
        ):
            for number, block in enumerate(copy):
                row = bytes(block)[_HEADER if number == 0 else 0 :]
                if len(row) <= _FIELD:
                    continue  # the trailer
                lines.append(row[_FIELD:])
                documents, size = documents + 1, size + len(row)
                if size >= BULK_BYTES:
                    self._bodies.put(b"".join(lines))
                    lines, size = [], 0
        if lines:
            self._bodies.put(b"".join(lines))
        return documents

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Sending:
    """One connection that sends bulk bodies."""

    def __init__(self, url: str) -> None:
        self._pool = urllib3.connectionpool.connection_from_url(url, maxsize=1, timeout=120)

    def __call__(self, bodies: Queue[bytes | None]) -> int:
        """Send one body after another, until there is None; how many bytes they had."""
        left = iter(bodies.get, None)
        try:
            return sum(map(self._send, left))
        except BaseException:
            deque(left, maxlen=0)  # else whoever copies would wait for room
            raise

    def _send(self, body: bytes) -> int:
        target = "/_bulk?require_alias=true&filter_path=errors,items.*.error"
        answer = self._pool.request(
            "POST", target, body=body, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status == 200, answer.data[:300]
        assert answer.data.startswith(b'{"errors":false'), answer.data[:300]
        return len(body)

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


def _with_each(work: Sequence[Any], make: Callable[[], Worker]) -> list[int]:
    """Do all of `work` on `CONNECTIONS` threads, each with a worker of its own."""
    own = threading.local()
    workers: list[Worker] = []

    def prepare() -> None:
        own.worker = make()
        workers.append(own.worker)

    def do(one: Any) -> int:
        done: int = own.worker(one)
        return done

    with ThreadPoolExecutor(CONNECTIONS, initializer=prepare) as threads:
        done = list(threads.map(do, work))
    for worker in workers:
        worker.close()
    return done
