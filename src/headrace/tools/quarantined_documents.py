"""List, build again or forget the documents that the cluster refused, beside the running stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError
from headrace.pipeline.inspection import inspect
from headrace.pipeline.project import Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.sinks.opensearch import Client
from headrace.state import GenerationState, Quarantine, Quarantined
from headrace.state.key import StateKey
from headrace.tools.applied_position import AppliedPosition
from headrace.tools.verification.sides import GenerationSides, open_sides, why_not
from headrace.tools.verification.verify import find_served_generation

# Documents that memory holds.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class RetriedDocuments:
    """The result of building quarantined documents again.

    Attributes:
        found: how many were in quarantine.
        left: those that are refused again, or fenced by a newer version, each with its reason.
    """

    found: int
    left: Sequence[Quarantined]


def list_quarantined(
    endpoints: Endpoints, key: StateKey, index: str | None = None, id_: str | None = None
) -> list[Quarantined]:
    """Return every document in quarantine, or those of an index, or one; oldest first.

    Raises:
        HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
    """
    with contextlib.closing(Client(endpoints.keeps_state)) as client:
        return Quarantine(client, key).entries(index, id_)


def forget_quarantined(endpoints: Endpoints, key: StateKey, entries: Iterable[Quarantined]) -> None:
    """Delete entries; the index is not changed.

    Raises:
        HeadraceError: as for `list_quarantined`.
    """
    with contextlib.closing(Client(endpoints.keeps_state)) as client:
        quarantine = Quarantine(client, key)
        for entry in entries:
            quarantine.drop(entry.generation, {entry.id: entry.position})


def retry_quarantined(
    project: Project, index: str | None = None, id_: str | None = None, *, sink: str | None = None
) -> RetriedDocuments:
    """Build quarantined documents of a cluster again; those that are accepted leave the quarantine.

    Those of an index that cannot be built stay, and hold up no other index's; named alone, it is refused.

    Raises:
        HeadraceError: USAGE for a sink that is no cluster of the deployment; SLOT_UNKNOWN; SCHEMA_CHANGED:
            an index was built from other files; BINDING, CONNECTION, DATABASE, SINK_UNREACHABLE, SINK_BUSY.
    """
    left: list[Quarantined] = []
    target = project.find_cluster(sink)
    endpoints = project.resolve().of(target.key)
    with (
        AppliedPosition(endpoints, target.key) as applied,
        connect(endpoints.database, application_name="headrace quarantine") as connection,
    ):
        quarantine = Quarantine(applied.client, target.key)
        found = quarantine.entries(index, id_)
        for name, entries in by_index(found).items():
            if name not in project.specs:
                gone = "the deployment does not have this index any more"
                # They stay, to be looked at: only who drops them says that they are not needed.
                left += [replace(entry, reason=gone) for entry in entries]
                continue
            state = applied.check()
            inspection = inspect(project.only(name), endpoints, connection, reading=False)
            try:
                served = find_served_generation(inspection, target, state, name)
            except HeadraceError as error:
                if index is not None:
                    raise
                left += [replace(entry, reason=error.cause) for entry in entries]
                continue
            with open_sides(inspection, target, applied, served) as sides:
                left += _retry(sides, served, quarantine, entries)
    return RetriedDocuments(len(found), left)


def _retry(
    sides: GenerationSides, served: GenerationState, quarantine: Quarantine, entries: Sequence[Quarantined]
) -> list[Quarantined]:
    """Build the documents of one index again; return those that stay in quarantine."""
    mine = [entry for entry in entries if entry.generation == served.generation]
    left = [entry for entry in entries if entry.generation != served.generation]
    for first in range(0, len(mine), _AT_ONCE):
        chunk = {entry.id: entry for entry in mine[first : first + _AT_ONCE]}
        refused, fenced = sides.rebuild(list(chunk))
        again = [replace(chunk[id_], reason=reason) for id_, reason in refused.items()]
        # What has fenced a document is the stream's write, which is right, or a version beyond the log.
        found = sides.recheck.run(chunk.keys() - refused.keys()) if fenced else []
        wrong = {finding.id: why_not(finding, None) for finding in found if finding.verdict.is_drift}
        # After each chunk: an error at a later one leaves those in quarantine that are not right.
        right = chunk.keys() - refused.keys() - wrong.keys()
        quarantine.drop(served.generation, {id_: chunk[id_].position for id_ in right})
        quarantine.put(again)
        left += [*again, *(replace(chunk[id_], reason=why) for id_, why in wrong.items())]
    return left


def by_index(entries: Iterable[Quarantined]) -> dict[str, list[Quarantined]]:
    """Group entries by their index."""
    result: dict[str, list[Quarantined]] = {}
    for entry in entries:
        result.setdefault(entry.index, []).append(entry)
    return result
