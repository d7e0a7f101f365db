"""Find the database of a deployment. A module of its own: executors know no deployment files."""

from __future__ import annotations

from headrace.config.deployment import Deployment
from headrace.config.resolve import resolve_database
from headrace.postgres.address import for_slot


def database_of(deployment: Deployment, slot: str) -> str:
    """Resolve the address of a deployment's database, for connections as of `for_slot`.

    Raises:
        ErrorGroup: CONFIG: a variable is not set.
    """
    command = tuple(deployment.source.password_command or ())
    return for_slot(resolve_database(deployment).reveal(), slot, command)
