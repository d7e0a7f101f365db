"""`headrace quarantine`: which documents did the cluster refuse, and what is to become of them?"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from headrace.cli import terminal
from headrace.model import format_lsn
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Endpoints, Project, open_endpoints, open_project
from headrace.pipeline.verification.repair import Repair
from headrace.pipeline.verification.sides import DatabaseDocuments
from headrace.pipeline.verification.verify import find_served_generation
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


def show_quarantine(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    index: str | None,
    id_: str | None,
    *,
    as_json: bool,
) -> None:
    """Print every document in quarantine, or those of an index, or one; oldest first.

    Raises:
        HeadraceError: CONFIG, SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    endpoints, own, prefix = open_endpoints(config, environ, slot)
    with contextlib.closing(Client(endpoints.sink)) as client:
        found = Quarantine(client, own, prefix).entries(index, id_)
    if as_json:
        terminal.data([asdict(one) | {"position": format_lsn(one.position)} for one in found])
    elif found:
        rows = [(one.index, one.id, one.at, format_lsn(one.position), one.reason) for one in found]
        terminal.table(("index", "id", "since", "position", "reason"), rows)
    else:
        terminal.say("nothing is in quarantine")


def drop_quarantined(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    index: str | None,
    id_: str | None,
    *,
    yes: bool,
) -> bool:
    """Forget entries, after a question; what the index holds of these documents stays as it is.

    Raises:
        HeadraceError: as `show_quarantine`; USAGE where nobody can answer.
    """
    endpoints, own, prefix = open_endpoints(config, environ, slot)
    with contextlib.closing(Client(endpoints.sink)) as client:
        quarantine = Quarantine(client, own, prefix)
        found = quarantine.entries(index, id_)
        if not found:
            terminal.say("nothing is in quarantine")
            return True
        if not terminal.agreed(f"Forget {_counted(found)} until they change again?", yes=yes):
            return False
        for one in found:
            quarantine.drop(one.generation, [one.id])
    terminal.done(f"forgotten: {_counted(found)}")
    return True


def retry_quarantined(
    config: Path, environ: Mapping[str, str], slot: str | None, index: str | None, id_: str | None
) -> bool:
    """Build documents in quarantine anew, beside the running stream; whether all of them are accepted now.

    Raises:
        HeadraceError: SLOT_UNKNOWN, SCHEMA_CHANGED where an index was not built from these files; CONFIG,
            SCHEMA, BINDING, CONNECTION, DATABASE, SINK_UNREACHABLE, SINK_BUSY.
    """
    project = open_project(config, environ, slot=slot)
    endpoints = project.resolve()
    left: list[Quarantined] = []
    with AppliedPosition(endpoints, project.slot, project.prefix) as applied:
        quarantine = Quarantine(applied.client, project.slot, project.prefix)
        found = quarantine.entries(index, id_)
        for name, entries in _by_index(found).items():
            if name not in project.specs:
                terminal.warn(f"{name}: the deployment does not have this index any more")
                left += entries
                continue
            served = find_served_generation(_inspected(project, endpoints), applied.check(), name)
            mine = [one for one in entries if one.generation == served.generation]
            refused = _rebuilt(project, endpoints, applied, served, [one.id for one in mine])
            quarantine.drop(served.generation, [one.id for one in mine if one.id not in refused])
            again = [replace(one, reason=refused[one.id]) for one in mine if one.id in refused]
            quarantine.put(again)
            left += [*again, *(one for one in entries if one.generation != served.generation)]
    if not found:
        terminal.say("nothing is in quarantine")
        return True
    terminal.done(f"{len(found) - len(left)} of {len(found)} documents are right now")
    for one in left:
        terminal.warn(f"{one.index} {one.id}: {one.reason}")
    return not left


def _rebuilt(
    project: Project,
    endpoints: Endpoints,
    applied: AppliedPosition,
    known: GenerationState,
    ids: Sequence[str],
) -> dict[str, str]:
    """Write what the database says of `ids`; those that are refused, and why."""
    index, inspection = known.index, _inspected(project, endpoints)
    project = inspection.project
    target = Generation(index, known.generation, known.hash, 0, known.uuid).target
    routed = {index} if project.specs[index].routing is not None else ()
    writer = open_writer(applied.client, {index: target}, project.writer_options(), routed)
    with contextlib.closing(writer), ReadSession(endpoints.database) as session:
        database = DatabaseDocuments(session, project.specs[index], inspection.catalog)
        return Repair(index, database, writer, applied).rebuild(ids)


def _inspected(project: Project, endpoints: Endpoints) -> Inspection:
    with connect(endpoints.database, application_name="headrace quarantine") as connection:
        return inspect(project, endpoints, connection, reading=False)


def _by_index(found: Sequence[Quarantined]) -> dict[str, list[Quarantined]]:
    result: dict[str, list[Quarantined]] = {}
    for one in found:
        result.setdefault(one.index, []).append(one)
    return result


def _counted(found: Sequence[Quarantined]) -> str:
    counts = [f"{len(entries)} of {name}" for name, entries in _by_index(found).items()]
    return f"{', '.join(counts)} in quarantine"
