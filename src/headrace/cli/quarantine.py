"""`headrace quarantine`: list, retry or forget the documents that the cluster refused."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.model import format_lsn
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project
from headrace.pipeline.verification.sides import DatabaseDocuments, Repair
from headrace.pipeline.verification.verify import find_served_generation
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import (
    Client,
    Generation,
    GenerationState,
    Quarantine,
    Quarantined,
)
from headrace.sinks.opensearch.routed import open_writer


def show_quarantine(context: CommandContext, index: str | None, id_: str | None) -> None:
    """Print every document in quarantine, or those of an index, or one; oldest first.

    Raises:
        HeadraceError: CONFIG, SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    endpoints, key = context.open_endpoints()
    with contextlib.closing(Client(endpoints.sink)) as client:
        entries = Quarantine(client, key).entries(index, id_)
    if context.as_json:
        terminal.data([asdict(entry) | {"position": format_lsn(entry.position)} for entry in entries])
    elif entries:
        rows = [
            (entry.index, entry.id, entry.at, format_lsn(entry.position), entry.reason) for entry in entries
        ]
        terminal.table(("index", "id", "since", "position", "reason"), rows)
    else:
        terminal.say("nothing is in quarantine")


def drop_quarantined(context: CommandContext, index: str | None, id_: str | None) -> bool:
    """Forget entries after a question; the index is not changed.

    Raises:
        HeadraceError: as for `show_quarantine`; USAGE where the question cannot be answered.
    """
    endpoints, key = context.open_endpoints()
    with contextlib.closing(Client(endpoints.sink)) as client:
        quarantine = Quarantine(client, key)
        entries = quarantine.entries(index, id_)
        if not entries:
            terminal.say("nothing is in quarantine")
            return True
        if not terminal.agreed(f"Forget {_count(entries)} until they change again?", yes=context.yes):
            return False
        for entry in entries:
            quarantine.drop(entry.generation, [entry.id])
    terminal.done(f"forgotten: {_count(entries)}")
    return True


def retry_quarantined(context: CommandContext, index: str | None, id_: str | None) -> bool:
    """Build quarantined documents again, beside the running stream; return whether all are accepted now.

    Raises:
        HeadraceError: SLOT_UNKNOWN; SCHEMA_CHANGED: an index was built from other files; CONFIG, SCHEMA,
            BINDING, CONNECTION, DATABASE, SINK_UNREACHABLE, SINK_BUSY.
    """
    project = context.open_project()
    endpoints = project.resolve()
    left: list[Quarantined] = []
    with AppliedPosition(endpoints, project.key) as applied:
        quarantine = Quarantine(applied.client, project.key)
        found = quarantine.entries(index, id_)
        for name, entries in _by_index(found).items():
            if name not in project.specs:
                terminal.warn(f"{name}: the deployment does not have this index any more")
                left += entries
                continue
            served = find_served_generation(
                _inspect(project, endpoints), project.primary, applied.check(), name
            )
            mine = [entry for entry in entries if entry.generation == served.generation]
            refused = _rebuild(project, endpoints, applied, served, [entry.id for entry in mine])
            quarantine.drop(served.generation, [entry.id for entry in mine if entry.id not in refused])
            again = [replace(entry, reason=refused[entry.id]) for entry in mine if entry.id in refused]
            quarantine.put(again)
            left += [*again, *(entry for entry in entries if entry.generation != served.generation)]
    if not found:
        terminal.say("nothing is in quarantine")
        return True
    terminal.done(f"{len(found) - len(left)} of {len(found)} documents are right now")
    for entry in left:
        terminal.warn(f"{entry.index} {entry.id}: {entry.reason}")
    return not left


def _rebuild(
    project: Project,
    endpoints: Endpoints,
    applied: AppliedPosition,
    served: GenerationState,
    ids: Sequence[str],
) -> dict[str, str]:
    """Write the documents of `ids` as they should be; return those that are refused, and why."""
    index, inspection = served.index, _inspect(project, endpoints)
    project = inspection.project
    target = Generation(index, served.generation, served.hash, 0, served.uuid).target
    routed = {index} if project.specs[index].routing is not None else ()
    writer = open_writer(applied.client, {index: target}, project.primary.writer_options(), routed)
    with contextlib.closing(writer), ReadSession(endpoints.database) as session:
        database = DatabaseDocuments(session, project.specs[index], inspection.catalog)
        return Repair(index, database, writer, applied).rebuild(ids)


def _inspect(project: Project, endpoints: Endpoints) -> Inspection:
    with connect(endpoints.database, application_name="headrace quarantine") as connection:
        return inspect(project, endpoints, connection, reading=False)


def _by_index(entries: Sequence[Quarantined]) -> dict[str, list[Quarantined]]:
    result: dict[str, list[Quarantined]] = {}
    for entry in entries:
        result.setdefault(entry.index, []).append(entry)
    return result


def _count(all_entries: Sequence[Quarantined]) -> str:
    counts = [f"{len(entries)} of {name}" for name, entries in _by_index(all_entries).items()]
    return f"{', '.join(counts)} in quarantine"
