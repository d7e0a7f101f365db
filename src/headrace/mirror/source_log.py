"""Make sure that the log goes on where a lake is: else something would be in neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import check_continuity, read_positions
from headrace.datasources.publication_membership import Published, read_published
from headrace.errors import BACKFILL_AGAIN, NEW_CHECKPOINT, SAME_SLOT_AGAIN, HeadraceError, Kind, as_clause
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.lake import Lake, check_answers
from headrace.mirror.positions import LakePositions, TablePosition
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.connection import connect
from headrace.postgres.publication import read_publication
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server_errors import WITHOUT_DEPLOYMENT
from headrace.postgres.setup import publication_too_young
from headrace.postgres.slot import read_slot, slot_problem

RELOAD = (
    "Run `headrace mirror --reload`: it reads all tables again. In the mode history all versions end, and "
    "new ones begin."
)
_OF_OTHERS = (BACKFILL_AGAIN + WITHOUT_DEPLOYMENT, BACKFILL_AGAIN, NEW_CHECKPOINT, SAME_SLOT_AGAIN)
"""What errors say that are raised for deployments and for queries, too; the longer of two first."""
_ANOTHER_SYSTEM = (
    "Correct the address. If pg_upgrade has made this server of the one before: run `headrace adopt "
    "--upgraded --mirror`, and no table is read again. Only where the database was moved: "
    f"{as_clause(RELOAD)}"
)


def remedy_of_mirrors(remedy: str) -> str:
    """Return the remedy of a gap in the log with what a mirror's user does about it."""
    for other in _OF_OTHERS:
        remedy = remedy.replace(other, RELOAD).replace(as_clause(other), as_clause(RELOAD))
    return remedy


def check_log(ends: MirrorEndpoints, known: LakePositions) -> None:
    """Make sure that the log goes on where the lake is, where there is a lake; nothing is changed.

    Raises:
        HeadraceError: SLOT_LOST, SLOT_UNKNOWN, PUBLICATION, CONTINUITY, where it does not.
    """
    if known.stream is None:
        return
    with connect(ends.url) as connection:
        facts = read_slot(connection, ends.slot)
        problem = None if facts is None else slot_problem(facts, connection.info.dbname)
        if facts is not None and problem is None and read_publication(connection, ends.publication) is None:
            problem = publication_too_young(ends.publication, facts)
        if problem is not None:
            problem.remedy = remedy_of_mirrors(problem.remedy)
            raise problem
    find_start(ends, known)


def check_slot_exists(ends: MirrorEndpoints, known: LakePositions) -> None:
    """Refuse a lake whose slot is gone: a new slot would look as if another program had moved the old one.

    Raises:
        HeadraceError: SLOT_UNKNOWN.
    """
    if known.stream is None:
        return
    with connect(ends.url) as connection:
        is_there = read_slot(connection, ends.slot) is not None
    if not is_there:
        find_start(ends, known)


def find_risk(ends: MirrorEndpoints, known: LakePositions) -> str | None:
    """Return what a start may do to another lake of the slot; None: nothing.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if known.stream is not None:
        return None
    with connect(ends.url) as connection:
        if read_slot(connection, ends.slot) is None:
            return None
    return (
        f"the slot {ends.slot} is there, and the lake at {ends.lake.location} is new. If another lake "
        "follows this slot, name another slot in [mirror]: the other lake would lack what this one reads"
    )


def find_start(ends: MirrorEndpoints, known: LakePositions) -> tuple[Mapping[str, Any], Lsn | None]:
    """Return the offset that the tables have reached, and from where (bytes) the log is read again.

    Raises:
        HeadraceError: CONTINUITY, where the log has a gap.
    """
    with ReplicationConnection(ends.url, "headrace look") as connection:
        now = read_positions(connection, ends.slot)
    if known.stream is None:
        assert now.confirmed is not None
        return Offset(now.confirmed).to_json() | now.origin.to_json(), now.confirmed
    reached, origin = Offset.from_json(known.stream).lsn, LogOrigin.from_json(known.stream)
    highest = max((_read_reached(ends.lake, *noted) for noted in known.tables.items()), default=0)
    try:
        check_continuity(now, ends.slot, reached, origin, known=highest)
    except HeadraceError as error:
        # A server that does not answer says nothing of its log.
        if error.kind is Kind.CONNECTION:
            raise
        is_other = origin is not None and now.origin.system != origin.system
        raise HeadraceError(error.kind, error.cause, _ANOTHER_SYSTEM if is_other else RELOAD) from error
    return known.stream, now.confirmed


def read_sent(ends: MirrorEndpoints, names: Sequence[TableName]) -> Published:
    """Return what the publication sends of tables."""
    with connect(ends.url) as connection:
        return read_published(connection, ends.publication, names)


def _read_reached(lake: Lake, name: TableName, position: TablePosition) -> Lsn:
    """Return up to where (bytes) a table has the log."""
    # A killed batch may have written it alone, and a promoted standby may lack just what that batch had.
    try:
        table = lake.open(name)
        written = None if table is None else table.position
    except lake.errors as error:
        check_answers(lake, error)
        written = None  # it waits, and is read again
    return position.complete if written is None else max(position.complete, written[0] + 1)


def find_unsent(
    known: Mapping[TableName, TablePosition], now: Published, tables: Iterable[TableName]
) -> set[TableName]:
    """Return the tables that the publication has not sent all the time since they were noted."""
    # The offset does not tell: it has no tables that wait, and goes on without them.
    noted = {name: known[name].sent for name in tables if name in known}
    return {name for name, sent in noted.items() if sent is not None and sent != now.of(name)}
