"""How does a document that a column routes stay the only one of its id, whatever its routing was before?

To a cluster a document is an id on a shard: another routing is another document, and versions fence each by
itself. Nobody knows for certain where a document lay (batches repeat, a seeding comes late), so all shards
are asked: a delete goes to each, and behind a write of all that have the id only the newest stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from headrace.errors import HeadraceError, Kind
from headrace.model import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.stored import Copy, copies
from headrace.sinks.opensearch.writer import OpenSearchWriter, WriterOptions

_AT_ONCE = 1_000
_ASKED_AT_ONCE = 5_000
_MOST_TRIES = 100_000


class Shards:
    """One routing value to each shard of indexes; asked once, for an index keeps its shards."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, index: str) -> tuple[str, ...]:
        """Values that lead to all shards of an index or alias, each to another; in the shards' order.

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
        for number in range(_MOST_TRIES):
            target = path(index, "_search_shards", query={"routing": str(number)})
            [led_to] = self._client.read(target).json()["shards"]
            if not led_to:
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"a shard of the index {index} is nowhere",
                    "Look at the cluster's health.",
                )
            found.setdefault(led_to[0]["shard"], str(number))
            if len(found) == count:
                return tuple(found[shard] for shard in sorted(found))
        raise HeadraceError(Kind.INTERNAL, f"no routing leads to some of the shards of {index}")


def open_writer(
    client: Client, targets: Mapping[str, str], options: WriterOptions, routed: Collection[str]
) -> DocumentWriter:
    """A writer for indexes of which a column routes the documents of `routed`."""
    writer = OpenSearchWriter(client, targets, options)
    return RoutedWriter(client, writer, targets, routed) if routed else writer


class RoutedWriter(DocumentWriter):
    """Writes through another writer; documents of routed indexes are there once when `write` returns.

    Args:
        client: stays the caller's.
        writer: becomes this one's, to be closed.
        targets: what is written, by index.
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
        """Write all.

        Raises:
            HeadraceError: as the writer; SINK_UNREACHABLE and SINK_BUSY, too, where the shards do not say
                what they hold: documents may be there twice until they are written again.
        """
        total, left = WriteResult(), iter(operations)
        while portion := list(islice(left, _AT_ONCE)):
            more = sum(len(self._of(one)) - 1 for one in portion if self._is_unknown(one))
            result = self._writer.write(self._everywhere(portion))
            self._tidy(portion)
            fewer = min(more, result.deleted)  # a delete is one, however many shards were asked
            result = dataclasses.replace(
                result, deleted=result.deleted - fewer, fenced=result.fenced - (more - fewer)
            )
            total += result
        return total

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()

    def _of(self, one: DocumentOperation) -> tuple[str, ...]:
        return self._shards.of(self._targets[one.index])

    def _is_unknown(self, one: DocumentOperation) -> bool:
        """Whether it may concern any shard."""
        return one.body is None and one.index in self._routed

    def _everywhere(self, portion: Iterable[DocumentOperation]) -> Iterator[DocumentOperation]:
        for one in portion:
            if self._is_unknown(one):
                yield from (dataclasses.replace(one, routing=routing) for routing in self._of(one))
            else:
                yield one

    def _tidy(self, portion: Iterable[DocumentOperation]) -> None:
        """Delete all but the newest copy of what was written.

        Of two that write one document at once, the one that looks last sees both copies. Where both have one
        version either will do, but everybody must choose the same: what differs is written again.
        """
        written: dict[str, list[str]] = {}
        for one in portion:
            if one.body is not None and one.index in self._routed:
                written.setdefault(one.index, []).append(one.id)
        for index, ids in written.items():
            target = self._targets[index]
            routings = self._shards.of(target)
            if len(routings) == 1:
                continue
            step = max(1, _ASKED_AT_ONCE // len(routings))
            for first in range(0, len(ids), step):
                found = copies(self._client, target, ids[first : first + step], routings)
                if surplus := list(_surplus(index, found, routings)):
                    self._writer.write(surplus)


def _surplus(index: str, found: Iterable[Copy], routings: tuple[str, ...]) -> Iterator[DocumentOperation]:
    """Deletes of all copies but the newest, at its version: nothing older comes back there."""
    by_id: dict[str, list[Copy]] = {}
    for one in found:
        by_id.setdefault(one.id, []).append(one)
    for some in by_id.values():
        newest = max(some, key=lambda one: (one.version, routings.index(one.routing)))
        for one in some:
            if one is not newest:
                yield DocumentOperation(index, one.id, newest.version, None, one.routing)
