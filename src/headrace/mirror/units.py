"""Decide what a mirror does next with one table: the only place that does. Pure.

A table of the lake is a unit, which fails alone. What the file and the database want (`MirroredTable`), and
what was observed of the lake, its notes and the log (`ObservedTable`), give one action.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.mirror.alterations import Alteration, plan_alteration
from headrace.mirror.columns import DROPPED, described, number_of
from headrace.mirror.drift import TableDrift, altered_columns, column_numbers, has_new_files
from headrace.mirror.lake import LakeTable, known_position
from headrace.mirror.partition_bounds import Bounds, can_tell
from headrace.mirror.partitions import partitions_of
from headrace.mirror.positions import TablePosition
from headrace.mirror.table_checks import find_problem, find_renamed
from headrace.mirror.tables import MirroredTable
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """What was observed of a table.

    Attributes:
        noted: what the mirror has noted of it; None: nothing.
        lake: the lake's table; None: there is none.
        other_commit: what another program did to its rows since they were noted; None: nothing.
        is_sent: whether the publication has sent it since.
        waits: why it waits, or waited until now; None: it does not.
        drift: what was done to its rows beside the log; None: nothing.
        is_kept: whether the slot has kept the log for it since it waits.
    """

    noted: TablePosition | None
    lake: LakeTable | None
    other_commit: str | None = None
    is_sent: bool = True
    waits: str | None = None
    drift: TableDrift | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply its changes."""


@dataclass(frozen=True, slots=True)
class Alter:
    """Give the lake's table the columns and partitions that it is to have."""

    alteration: Alteration


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Read again what is within the bounds of some partitions; `why`: what became of them."""

    bounds: tuple[Bounds, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Load:
    """Read all of its rows; `why` they are read again, None for the first time."""

    why: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave it as it is until something is done about an error; `ends_with_load`: it may be read again."""

    error: HeadraceError
    ends_with_load: bool = False


Action = Apply | Alter | ReadParts | Load | Wait


def decide(table: MirroredTable, observed: ObservedTable) -> Action:
    """Return what is to be done with a table; what is asked first decides."""
    noted, lake = observed.noted, observed.lake
    wait = _find_wait(table, observed)
    if wait is not None:
        return wait
    if noted is None or lake is None:
        return Load()
    # What the lake lacks, and no later batch will tell, is read again.
    why = next(_lacks(table, noted, lake, observed), None)
    if why is not None:
        return Load(why)
    if observed.drift is None:
        return _alter(table, noted, lake)
    bounds = bounds_of(table, noted, observed.drift)
    # What changed beside the log is read again: within the bounds of partitions, where these tell.
    if bounds is None or has_other_names(table, noted) or _alter(table, noted, lake) != Apply():
        return Load(observed.drift.why)
    return ReadParts(bounds, observed.drift.why)


def _find_wait(table: MirroredTable, observed: ObservedTable) -> Wait | None:
    """Return why a table has to wait; None: it has not."""
    noted, lake = observed.noted, observed.lake
    # Whatever the lake has: a table that cannot be mirrored as the file wants it waits.
    problem = find_problem(table) or _find_foreign(table, lake)
    if noted is not None and lake is not None:
        # Before whatever reads the table again, which would bring a renamed column's values into the lake.
        problem = problem or find_named_otherwise(table, noted)
    if problem is not None:
        return Wait(problem)
    # A past is not read again in silence.
    if observed.other_commit is not None and table.keeps_past:
        return Wait(_past_written(table.name, observed.other_commit), ends_with_load=True)
    return None


def _find_foreign(table: MirroredTable, lake: LakeTable | None) -> HeadraceError | None:
    """Return the error of a table that no mirror made, or that was made in another mode: none is overwritten.

    The mirror's own columns tell the mode: rows of one read as another's would all be wrong.
    """
    if lake is None:
        return None
    if lake.position is None:
        return HeadraceError(
            Kind.CONFIG,
            f"{lake.uri} is a table that no mirror wrote",
            "Remove it, or give the mirror another location.",
        )
    if {field.name for field in lake.schema if number_of(field) is None} == table.rules.names:
        return None
    place = lake.uri.removeprefix("file://")
    return HeadraceError(
        Kind.CONFIG,
        f"the lake's table {table.name} was not written in the mode {table.part.mode!r}"
        f"{' with soft_delete' if table.part.soft_delete else ''}",
        f"Write the mode that it was loaded in into its [[mirror.tables]], or remove {place}.",
    )


def find_named_otherwise(table: MirroredTable, noted: TablePosition) -> HeadraceError | None:
    """Return the error of a renamed column that the file names; None: there is none.

    Its values would come into the lake, or be taken out of it.
    """
    before = noted.catalog.tables.get(table.name)
    is_another = noted.relation != table.relation
    return None if before is None or is_another else find_renamed(table, before)


def _past_written(name: TableName, what: str) -> HeadraceError:
    """Return the error of a table with a past that another program has written.

    Rows as they are can be read again; of what they were, the database knows nothing.
    """
    return HeadraceError(
        Kind.CONTINUITY,
        f"another program has written the lake's table {name} ({what}), and its past may be incomplete: "
        "the database has only the present rows",
        f"Stop the mirror and run `headrace mirror verify {format_table(name)} --repair`: it reads the table "
        "again, and keeps the versions, changes and deleted rows that are there.",
    )


def _lacks(
    table: MirroredTable, noted: TablePosition, lake: LakeTable, observed: ObservedTable
) -> Iterator[str]:
    name = table.name
    # The oid, not the name: a table that was made again has other rows, and perhaps the same columns.
    if noted.relation != table.relation:
        yield f"the table {name} was dropped and created again"
    if not observed.is_sent:
        yield f"the publication has not sent the table {name} all the time"
    if observed.other_commit is not None:
        yield f"another program has written the lake's table {name} ({observed.other_commit})"
    # Unless the slot stood still for it.
    if observed.waits is not None and not observed.is_kept:
        yield f"the lake lacks changes of {name}, because the table waited: {observed.waits}"
    # The lake has the rows of the former condition; which others there are, only the database knows.
    if noted.where != table.part.where:
        yield f"other rows of {name} are wanted (where)"
    reached = max(noted.complete, known_position(lake)[0])
    if noted.altered > reached and _is_altered_again(table, noted):
        yield f"{name} was altered again before the log had come to the alteration before"


def _is_altered_again(table: MirroredTable, noted: TablePosition) -> bool:
    """Tell whether a table was altered so that two alterations cannot be told apart in the log.

    Names are known from one look to the next: of a time with three of them nobody knows which a row has.
    Files that are rewritten have the default of an added column, which the database forgets then.
    """
    before, now = noted.catalog.tables.get(table.name), table.catalog.tables.get(table.name)
    is_rewritten = before is not None and now is not None and has_new_files(before, now)
    return is_rewritten or has_other_names(table, noted)


def bounds_of(table: MirroredTable, noted: TablePosition, drift: TableDrift) -> tuple[Bounds, ...] | None:
    """Return the bounds of the partitions whose rows alone are concerned; None: the table is read whole.

    Changes do not say in which partition they are, and a table without a key has no other way to tell.
    """
    if drift.parts is None or table.part.mode == "changes" or not table.key:
        return None
    found: dict[Bounds | None, None] = {}
    for oid in sorted(drift.parts):
        before, now = noted.leaves, table.leaves
        # One that went and came with other bounds has rows within both.
        found |= dict.fromkeys([before.get(oid, now.get(oid)), now.get(oid, before.get(oid))])
    bounds = tuple(part for part in found if part is not None and can_tell(part, table.columns_by_number))
    # One part whose rows cannot be told by its bounds is enough: then the whole table is read.
    return bounds if len(bounds) == len(found) else None


def _alter(table: MirroredTable, noted: TablePosition, lake: LakeTable) -> Action:
    """Return what makes the table as it is to be where only columns differ, or partitions, or nothing."""
    # Columns that only the lake has stay there: they need no alteration.
    present = pa.schema([field for field in lake.schema if DROPPED not in (field.metadata or {})])
    is_partitioned = partitions_of(lake.schema) == table.part.partitions
    if described(present) == described(table.lake_schema) and is_partitioned:
        return Apply()
    before = noted.catalog.tables.get(table.name)
    # The highest number of a column when it was noted: no later one has it.
    highest = 0 if before is None else before.highest
    alteration = plan_alteration(lake.schema, table.lake_schema, keeps=table.rules.keeps, highest=highest)
    if alteration.needs_load or table.is_known_by_content:
        return Load(
            f"columns of {table.name} were altered, or the file's settings for them: the lake lacks values"
        )
    return Alter(alteration)


def has_other_names(table: MirroredTable, noted: TablePosition) -> bool:
    """Tell whether columns may be called otherwise in the log than when a table was noted."""
    before = noted.catalog.tables.get(table.name)
    if before is None:
        return False
    now = table.catalog.tables[table.name]
    return column_numbers(before) != column_numbers(now) or len(altered_columns(before, now)) > 1
