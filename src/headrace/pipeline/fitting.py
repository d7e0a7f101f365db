"""Find the indexes whose schema files fit the database: a run goes on with them while the others wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from headrace.errors import in_one_line
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Project
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection

LOCK_SECONDS = 1.0
"""How long a run's look at the database waits for a lock on a table."""


def inspect_fitting(project: Project, endpoints: Endpoints, connection: Connection) -> Inspection:
    """Inspect the database for the indexes of a project that fit it; the others wait in its project.

    Where the server itself has a problem, or no index alone explains what is wrong, the inspection is of all
    of them and has errors.

    Args:
        project: all indexes; none of them waits.
        endpoints: the endpoints of the deployment.
        connection: a connection to the database.

    Raises:
        HeadraceError: as for `inspect`.
    """
    complete = inspection = _inspect(project, endpoints, connection)
    waiting: dict[str, str] = {}
    # What does not fit may hide something else that does not: until those that are left are right.
    while inspection.errors() and not inspection.other_problems:
        suspects = inspection.misfits or frozenset(inspection.project.specs)
        found = {name: _why_unfit(project, name, endpoints, connection) for name in suspects}
        unfit = {name: why for name, why in found.items() if why}
        if not unfit:
            return complete
        waiting |= unfit
        inspection = _inspect(_only(project, project.specs.keys() - waiting.keys()), endpoints, connection)
    return dataclasses.replace(inspection, project=dataclasses.replace(inspection.project, waiting=waiting))


def _why_unfit(project: Project, name: str, endpoints: Endpoints, connection: Connection) -> str:
    """Return the errors that keep one index from being followed, as one text; empty where there are none."""
    return in_one_line(_inspect(_only(project, {name}), endpoints, connection).errors())


def _inspect(project: Project, endpoints: Endpoints, connection: Connection) -> Inspection:
    # Orders and the query wait for it.
    return inspect(project, endpoints, connection, lock_seconds=LOCK_SECONDS)


def _only(project: Project, names: Collection[str]) -> Project:
    return dataclasses.replace(
        project, specs={name: spec for name, spec in project.specs.items() if name in names}
    )
