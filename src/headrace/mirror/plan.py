"""Plan what the start of a mirror will do, without doing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.errors import HeadraceError
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import MirroredTable
from headrace.mirror.units import Action, Alter, Load, ReadParts, Wait
from headrace.model.lsn import Lsn
from headrace.model.names import TableName, name_arrays
from headrace.model.units import quantity
from headrace.model.units import size as size_text
from headrace.postgres.lock_holders import LockedError
from headrace.postgres.session import ReadSession

_SIZES = """
SELECT n.nspname::text, c.relname::text,
       CASE WHEN min(part.reltuples) >= 0 THEN sum(part.reltuples)::bigint END,
       sum(pg_table_size(part.oid))::bigint
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
JOIN pg_class part ON part.relkind = 'r'
     AND (part.oid = c.oid OR part.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
GROUP BY n.nspname, c.relname
"""
_MISSING = """
SELECT NOT EXISTS (SELECT FROM pg_publication WHERE pubname = $1::text),
       NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $2::text)
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large a table is, about: its rows as the last ANALYZE counted them, None: none did; its bytes."""

    rows: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a start does with a table.

    Attributes:
        table: the table.
        mode: what the lake holds of it.
        size: how large it is.
        complete: up to where (bytes) the lake has it; None: it will be loaded.
        why: what is done before its changes are applied, or why it is read again; None: nothing.
    """

    table: TableName
    mode: str
    size: TableSize
    complete: Lsn | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What a start does.

    Attributes:
        tables: with each table that is written.
        publication: the publication's name where it will be made; None: it is there.
        slot: the slot's, in the same way.
        waiting: why each of the other tables would wait.
        left_out: why tables are left out that only patterns match, or that `exclude` names.
        risk: what a start may do to another lake; None: nothing.
    """

    tables: tuple[TablePlan, ...]
    publication: str | None
    slot: str | None
    waiting: Mapping[TableName, HeadraceError] = field(default_factory=lambda: MappingProxyType({}))
    left_out: Mapping[TableName, str] = field(default_factory=lambda: MappingProxyType({}))
    risk: str | None = None

    @property
    def to_load(self) -> tuple[TablePlan, ...]:
        """The tables that will be loaded."""
        return tuple(table for table in self.tables if table.complete is None)


def make_plan(
    session: ReadSession,
    tables: Mapping[TableName, MirroredTable],
    known: Mapping[TableName, TablePosition],
    actions: Mapping[TableName, Action],
    *,
    publication: str,
    slot: str,
) -> MirrorPlan:
    """Return what a start does.

    Args:
        session: of the database.
        tables: the tables that the file chooses.
        known: what the lake has of them.
        actions: what is to be done with each of them.
        publication: the mirror's publication.
        slot: its slot.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    sizes = read_sizes(session, tables)
    [(no_publication, no_slot)] = session.query(_MISSING, (publication, slot))
    plans = []
    for name, action in sorted(actions.items()):
        if not isinstance(action, Wait):
            is_loaded = isinstance(action, Load) or no_slot
            complete = None if is_loaded else known[name].complete
            plans.append(
                TablePlan(name, tables[name].part.mode, sizes.get(name, TableSize()), complete, _why(action))
            )
    return MirrorPlan(
        tuple(plans),
        publication if no_publication else None,
        slot if no_slot else None,
        {name: action.error for name, action in actions.items() if isinstance(action, Wait)},
    )


def _why(action: Action) -> str | None:
    match action:
        case Load(why):
            return why
        case Alter(alteration):
            return f"alters it: {alteration}"
        case ReadParts(_, why):
            return f"reads a part of it again: {why}"
        case _:
            return None


def read_sizes(session: ReadSession, tables: Collection[TableName]) -> dict[TableName, TableSize]:
    """Return how large tables are, without those that somebody has locked.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    try:
        rows = session.query(_SIZES, name_arrays(tables))
    # One locked table hides the sizes of all: each is asked for alone then.
    except LockedError:
        if len(tables) == 1:
            return {}
        return {name: size for table in tables for name, size in read_sizes(session, [table]).items()}
    return {TableName(schema, name): TableSize(number, size) for schema, name, number, size in rows}


def total(sizes: Iterable[TableSize]) -> str:
    """Return how large tables are together, for people."""
    found = list(sizes)
    rows = [size.rows for size in found if size.rows is not None]
    counted = f"about {quantity(sum(rows), 'row')}, " if len(rows) == len(found) else ""
    return f"{counted}{size_text(sum(size.size for size in found))}"
