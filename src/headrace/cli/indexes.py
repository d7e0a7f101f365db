"""`headrace indexes`, `reindex` and `rollback`: which generations are there, and which one do readers see?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.cli import terminal
from headrace.model.units import size
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.generation_requests import request_generation, wait_until_served
from headrace.pipeline.project import find_index, open_endpoints, open_project
from headrace.sinks.opensearch import Client, ControlRequests, GenerationState, build_notes
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.control_requests import What
from headrace.sinks.opensearch.orphans import Orphan, orphans


@dataclass(frozen=True, slots=True)
class Listed:
    """One generation, for people and programs.

    Attributes:
        state: served, building, kept, frozen, failed, gone or orphaned (docs/operations.md).
        documents: searchable ones, nested parts not counted; of one that is built, those written; None where
            it is gone.
        bytes: on disk, without replicas.
        created: ISO 8601, UTC.
        ordered: what is asked for and not done yet.
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


def show_indexes(config: Path, environ: Mapping[str, str], slot: str | None, *, as_json: bool) -> None:
    """Print every generation of the deployment.

    Raises:
        HeadraceError: SLOT_UNKNOWN where the cluster knows no such pipeline; CONFIG, SINK_UNREACHABLE.
    """
    endpoints, name, prefix = open_endpoints(config, environ, slot)
    with AppliedPosition(endpoints, name, prefix) as applied:
        state = applied.state()
        indexes = dict.fromkeys(one.index for one in state.generations)
        ordered = {one.index: one.what for one in ControlRequests(applied.client, name, prefix).read(indexes)}
        found = [
            _listed(applied.client, one, ordered.get(one.index), (name, prefix)) for one in state.generations
        ]
        found += [_orphaned(applied.client, orphan) for orphan in orphans(applied.client, prefix)]
    if as_json:
        terminal.data([asdict(one) for one in found])
        return
    head = ("index", "generation", "state", "documents", "size", "age", "hash")
    terminal.table(head, [_row(one) for one in found], right=(3, 4, 5))
    for one in found:
        if one.reason:
            terminal.say(f"{one.generation}: {one.reason}")
    for index, what in ordered.items():
        terminal.say(f"{index}: {what} is asked for, and not done yet")


def order(
    config: Path, environ: Mapping[str, str], slot: str | None, index: str, what: What, *, wait: float | None
) -> None:
    """Ask the pipeline to build `index` anew, or to let readers see the generation before.

    Args:
        wait: seconds to wait until it is done; None returns at once.

    Raises:
        HeadraceError: as `ask` and `wait_until_served`; CONFIG.
    """
    project = open_project(config, environ, slot=slot)
    find_index(project, index)
    endpoints = project.resolve()
    with AppliedPosition(endpoints, project.slot, project.prefix) as applied:
        request = request_generation(applied, project, index, what)
        if request.is_heard:
            terminal.say(f"{what} {index}: asked for; `headrace indexes` shows how it gets on")
        else:
            terminal.say(f"{what} {index}: nothing runs; the next `headrace run` begins with it")
        if wait is not None:
            with terminal.working(f"waiting for {what} {index} …"):
                served = wait_until_served(applied, request, wait)
            terminal.done(f"{index}: readers see {served}")


def _listed(client: Client, one: GenerationState, ordered: str | None, place: tuple[str, str]) -> Listed:
    documents, bytes_, created = _size(client, one.generation)
    if created is not None and one.building:
        notes = build_notes(client, *place, one.generation).load()
        documents = 0 if notes is None else notes["documents"]
    state = _state(one) if created is not None else "gone"
    return Listed(one.index, one.generation, state, documents, bytes_, created, one.hash, one.frozen, ordered)


def _orphaned(client: Client, orphan: Orphan) -> Listed:
    served = f"readers see it as {', '.join(orphan.aliases)}; " if orphan.aliases else ""
    reason = (
        f"{served}no deployment that keeps its state in this cluster knows it. Where none of another cluster "
        f"has it as a secondary sink: DELETE /{orphan.index}"
    )
    size = _size(client, orphan.index)
    return Listed(orphan.name, orphan.index, "orphaned", *size, orphan.hash, reason, None)


def _size(client: Client, index: str) -> tuple[int | None, int | None, str | None]:
    """An index's documents, its bytes without replicas, and when it was made; None where it is gone."""
    stats = client.read(path(index, "_stats", "store"), allow=(404,))
    settings = client.read(path(index, "_settings"), allow=(404,))
    counted = client.read(path(index, "_count"), allow=(404,))
    if not (stats.ok and settings.ok and counted.ok):
        return None, None, None
    bytes_ = stats.json()["_all"]["primaries"]["store"]["size_in_bytes"]
    born = int(settings.json()[index]["settings"]["index"]["creation_date"]) / 1000
    created = datetime.fromtimestamp(born, UTC).isoformat(timespec="seconds")
    return counted.json()["count"], bytes_, created


def _state(one: GenerationState) -> str:
    if one.published:
        return "served"
    if one.frozen:
        return "failed" if one.building else "frozen"
    return "building" if one.building else "kept"


def _row(one: Listed) -> tuple[str, ...]:
    age = "" if one.created is None else _age(datetime.now(UTC) - datetime.fromisoformat(one.created))
    state = f"{one.state}, frozen" if one.state == "served" and one.reason else one.state
    return (
        one.index,
        one.generation,
        state,
        "" if one.documents is None else f"{one.documents:,}",
        "" if one.bytes is None else size(one.bytes),
        age,
        one.hash,
    )


def _age(given: timedelta) -> str:
    """In its largest unit."""
    seconds = given.total_seconds()
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
