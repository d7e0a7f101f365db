"""Keep documents that a column routes unique by id, whatever their routing was before.

To a cluster, a document is an id on a shard: with another routing it is another document, and versions fence
each of them separately. Where a document lay before is not known for certain (batches repeat, a backfill
comes late), so all shards are queried: a delete goes to every shard, and after a write only the newest of all
copies stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import Copy, copies
from headrace.sinks.opensearch.writer import OpenSearchWriter, WriterOptions

_BATCH_SIZE = 1_000
_MGET_SIZE = 5_000
_MAX_TRIES = 100_000


class Shards:
    """Finds one routing value for each shard of an index; cached, because an index keeps its shards."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, index: str) -> tuple[str, ...]:
        """Return values that lead to the shards of an index or alias, one each, in the shards' order.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, SINK_REJECTED.
        """
        if index not in self._known:
            self._known[index] = self._found(index)
        return self._known[index]

    def _found(self, index: str) -> tuple[str, ...]:
        [about] = self._client.read(path(index, "_settings")).json().values()
        count = int(about["settings"]["index"]["number_of_shards"])
        if count == 1:
            return ("0",)
        found: dict[int, str] = {}
        # The cluster hashes a routing, and names none for a shard: they are tried until each shard was met.
        for number in range(_MAX_TRIES):
            target = path(index, "_search_shards", query={"routing": str(number)})
            [led_to] = self._client.read(target).json()["shards"]
            if not led_to:
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"a shard of the index {index} is on no node",
                    "Look at the cluster's health.",
                )
            found.setdefault(led_to[0]["shard"], str(number))
            if len(found) == count:
                return tuple(found[shard] for shard in sorted(found))
        raise HeadraceError(Kind.INTERNAL, f"no routing leads to some of the shards of {index}")


def open_writer(
    client: Client, targets: Mapping[str, str], options: WriterOptions, routed: Collection[str]
) -> DocumentWriter:
    """Create a writer for indexes; a column routes the documents of those in `routed`."""
    writer = OpenSearchWriter(client, targets, options)
    return RoutedWriter(client, writer, targets, routed) if routed else writer


class RoutedWriter(DocumentWriter):
    """Writes through another writer and keeps documents of routed indexes unique.

    Args:
        client: stays the caller's.
        writer: owned from now on; closed with this one.
        targets: the alias that is written, by index.
        routed: the indexes whose documents a column routes.
    """

    def __init__(
        self, client: Client, writer: DocumentWriter, targets: Mapping[str, str], routed: Collection[str]
    ) -> None:
        self._client = client
        self._writer = writer
        self._targets = dict(targets)
        self._routed = frozenset(routed)
        self._shards = Shards(client)

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations.

        Raises:
            HeadraceError: as the writer; SINK_UNREACHABLE and SINK_BUSY also where the shards cannot be
                queried: documents may then exist twice until they are written again.
        """
        total, remaining = WriteResult(), iter(operations)
        for first in remaining:
            passed: list[DocumentOperation] = []
            chunk = chain([first], islice(remaining, _BATCH_SIZE - 1))
            result = self._writer.write(self._to_all_shards(chunk, passed))
            # After the writes: a kill in between leaves a copy too many, and the batch is repeated.
            self._delete_older_copies(passed)
            extra = sum(len(self._routings(deleted)) - 1 for deleted in passed if deleted.body is None)
            extra_deleted = min(extra, result.deleted)  # a delete counts once, however many shards it went to
            result = dataclasses.replace(
                result, deleted=result.deleted - extra_deleted, fenced=result.fenced - (extra - extra_deleted)
            )
            total += result
        return total

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()

    def _routings(self, operation: DocumentOperation) -> tuple[str, ...]:
        return self._shards.of(self._targets[operation.index])

    def _to_all_shards(
        self, chunk: Iterable[DocumentOperation], passed: list[DocumentOperation]
    ) -> Iterator[DocumentOperation]:
        """Yield deletes once for each shard; note what is routed in `passed`, without its bytes."""
        for operation in chunk:
            if operation.index in self._routed:
                # A thousand documents may be too much for the memory.
                passed.append(dataclasses.replace(operation, body=operation.body and b""))
            if operation.body is None and operation.index in self._routed:
                yield from (
                    dataclasses.replace(operation, routing=routing) for routing in self._routings(operation)
                )
            else:
                yield operation

    def _delete_older_copies(self, passed: Iterable[DocumentOperation]) -> None:
        """Delete all but the newest copy of what was written.

        Of two processes that write one document at the same time, the later one to read sees both copies.
        Where both copies have the same version either may stay, but every process must choose the same one.
        """
        written: dict[str, list[str]] = {}
        for operation in passed:
            if operation.body is not None:
                written.setdefault(operation.index, []).append(operation.id)
        for index, ids in written.items():
            target = self._targets[index]
            routings = self._shards.of(target)
            if len(routings) == 1:
                continue
            # Each id is asked for once on every shard.
            step = max(1, _MGET_SIZE // len(routings))
            for first in range(0, len(ids), step):
                found = copies(self._client, target, ids[first : first + step], routings)
                if surplus := list(_surplus(index, found, routings)):
                    self._writer.write(surplus)


def _surplus(index: str, found: Iterable[Copy], routings: tuple[str, ...]) -> Iterator[DocumentOperation]:
    """Yield deletes of all copies but the newest, at its version, so that nothing older is accepted there."""
    by_id: dict[str, list[Copy]] = {}
    for copy in found:
        by_id.setdefault(copy.id, []).append(copy)
    for document_copies in by_id.values():
        # Of copies with one version every writer keeps the same: two must not delete one each.
        newest = max(document_copies, key=lambda copy: (copy.version, routings.index(copy.routing)))
        for copy in document_copies:
            if copy is not newest:
                yield DocumentOperation(index, copy.id, newest.version, None, copy.routing)
