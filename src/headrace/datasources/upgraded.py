"""Let a checkpoint go on with the server that pg_upgrade has made of the one before (decision 0194)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import read_positions
from headrace.capture.upgrade import check_upgraded
from headrace.datasources.followed_tables import FollowedTables, since_fields, since_of
from headrace.datasources.initial_snapshot import SnapshotProgress
from headrace.datasources.source_options import CdcOptions
from headrace.errors import NEW_CHECKPOINT, HeadraceError, Kind, as_clause
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.replication import ReplicationConnection

_START_OVER = as_clause(NEW_CHECKPOINT)


def adopted_offset(
    options: CdcOptions, start: Mapping[str, Any], tables: FollowedTables
) -> dict[str, Any] | None:
    """Return the offset of the same place on the server that pg_upgrade has made; None where it made none.

    Args:
        options: of the query; `upgradedFrom` names the system of the server before.
        start: the last offset in the checkpoint.
        tables: know the catalog of the new server afterwards.

    Raises:
        HeadraceError: CONTINUITY where the server is another one, or rows were being read; CONNECTION,
            DATABASE.
    """
    before = LogOrigin.from_json(start)
    if before is None or before.system != options.upgraded_from:
        return None
    url = for_slot(options.connection, options.slot)
    with ReplicationConnection(url, "headrace look") as replication:
        now = read_positions(replication, options.slot)
    if now.origin.system == before.system:
        return None
    if SnapshotProgress.from_json(start) is not None:
        raise HeadraceError(
            Kind.CONTINUITY,
            "the rows of a table were being read when the server was upgraded, and their snapshot is gone",
            f"Lead the address to the server before and let the query go on; or {_START_OVER}",
        )
    reached, differences = Offset.from_json(start), partial(tables.take_up, start)
    with connect(url) as connection:
        confirmed = check_upgraded(
            connection,
            now,
            options.slot,
            reached,
            before,
            publication=options.publication,
            differences=differences,
            start_over=_START_OVER,
        )
    place = Offset(confirmed)
    return place.to_json() | since_fields(since_of(start), place.lsn) | now.origin.to_json() | tables.fields()


def is_adoption(start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Tell whether a batch leads from one system to another: it has no changes."""
    before, after = LogOrigin.from_json(start), LogOrigin.from_json(end)
    return before is not None and after is not None and before.system != after.system
