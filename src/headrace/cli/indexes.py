"""`headrace indexes`: list the generations of every index."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model.units import duration, size
from headrace.sinks.opensearch import Client, Generation
from headrace.sinks.opensearch.client import path
from headrace.state import GenerationState, Mailbox, StateKey, backfill_progress
from headrace.state.orders import OF_GENERATIONS
from headrace.state.orphans import orphans
from headrace.tools.applied_position import AppliedPosition


@dataclass(frozen=True, slots=True)
class ListedGeneration:
    """One generation as `headrace indexes` lists it; its fields are the keys of the JSON output.

    Attributes:
        index: the name of the index.
        generation: the name of the generation.
        state: served, building, retained, stopped, failed, gone or orphaned (docs/guides/generations.md).
        documents: searchable documents without nested parts; while building, those written; None where the
            generation is gone.
        bytes: bytes on disk, without replicas.
        created: ISO 8601, UTC.
        hash: the hash of the definition that it is built from.
        reason: why it is stopped, or how to remove it.
        ordered: a reindex or rollback that is not done yet.
    """

    index: str
    generation: str
    state: str
    documents: int | None
    bytes: int | None
    created: str | None
    hash: str
    reason: str
    ordered: str | None


def show_indexes(context: CommandContext) -> None:
    """Print every generation of the deployment.

    Raises:
        HeadraceError: SLOT_UNKNOWN where the cluster knows no such pipeline; CONFIG, SINK_UNREACHABLE.
    """
    with AppliedPosition(*context.open_endpoints()) as applied:
        client, key = applied.client, applied.key
        ordered = _open_changes(Mailbox(client, key))
        found = [
            _list_generation(client, generation, ordered.get(generation.index), key)
            for generation in applied.state().generations
        ]
        found += [_list_orphan(client, orphan) for orphan in orphans(client, key.prefix)]
    if context.as_json:
        terminal.data([asdict(generation) for generation in found])
        return
    head = ("index", "generation", "state", "documents", "size", "age", "hash")
    terminal.table(head, [_row(generation) for generation in found], right=(3, 4, 5))
    for generation in found:
        if generation.reason:
            terminal.say(f"{generation.generation}: {generation.reason}")
    for index, what in ordered.items():
        terminal.say(f"{index}: {what} was ordered, and is not done yet")


def _open_changes(mailbox: Mailbox) -> dict[str, str]:
    """Return the reindexes and rollbacks that are not done yet, by index."""
    return {
        order.index: order.kind.value
        for order in mailbox.open_orders()
        if order.kind in OF_GENERATIONS and order.index is not None and not order.sink
    }


def _list_generation(
    client: Client, generation: GenerationState, ordered: str | None, key: StateKey
) -> ListedGeneration:
    documents, bytes_, created = _size(client, generation.generation)
    if created is not None and generation.building:
        notes = backfill_progress(client, key, generation.generation).load()
        documents = 0 if notes is None else notes["documents"]
    state = _state(generation) if created is not None else "gone"
    name, reason = generation.generation, generation.frozen
    measured = documents, bytes_, created
    return ListedGeneration(generation.index, name, state, *measured, generation.hash, reason, ordered)


def _list_orphan(client: Client, orphan: Generation) -> ListedGeneration:
    served = f"readers see it as {', '.join(orphan.names)}; " if orphan.names else ""
    reason = (
        f"{served}no deployment that keeps its state in this cluster knows it. If no other deployment has "
        f"this cluster as a secondary sink, remove it: DELETE /{orphan.index}"
    )
    size = _size(client, orphan.index)
    return ListedGeneration(orphan.name, orphan.index, "orphaned", *size, orphan.hash, reason, None)


def _size(client: Client, index: str) -> tuple[int | None, int | None, str | None]:
    """Return an index's documents, bytes without replicas and creation time; None where it is gone."""
    # The run may drop the index between two of these requests.
    stats = client.read(path(index, "_stats", "store"), allow=(404,))
    settings = client.read(path(index, "_settings"), allow=(404,))
    # Not from _stats: it counts the objects of nested lists as documents.
    counted = client.read(path(index, "_count"), allow=(404,))
    if not (stats.ok and settings.ok and counted.ok):
        return None, None, None
    bytes_ = stats.json()["_all"]["primaries"]["store"]["size_in_bytes"]
    born = int(settings.json()[index]["settings"]["index"]["creation_date"]) / 1000
    created = datetime.fromtimestamp(born, UTC).isoformat(timespec="seconds")
    return counted.json()["count"], bytes_, created


def _state(generation: GenerationState) -> str:
    if generation.published:
        return "served"
    if generation.frozen:
        return "failed" if generation.building else "stopped"
    return "building" if generation.building else "retained"


def _row(generation: ListedGeneration) -> tuple[str, ...]:
    age = ""
    if generation.created is not None:
        lived = datetime.now(UTC) - datetime.fromisoformat(generation.created)
        age = duration(max(0.0, lived.total_seconds()))
    stopped = ", stopped" if generation.state == "served" and generation.reason else ""
    return (
        generation.index,
        generation.generation,
        f"{generation.state}{stopped}",
        "" if generation.documents is None else f"{generation.documents:,}",
        "" if generation.bytes is None else size(generation.bytes),
        age,
        generation.hash,
    )
