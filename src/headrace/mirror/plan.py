"""Plan what the start of a mirror will do, without doing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

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
from headrace.postgres.sql_files import read_sql

_SIZES = read_sql(__package__, "sizes")
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
        warnings: what of the file has no effect, and what a start may do to another lake.
    """

    tables: tuple[TablePlan, ...]
    publication: str | None
    slot: str | None
    waiting: Mapping[TableName, HeadraceError]
    left_out: Mapping[TableName, str]
    warnings: tuple[str, ...]

    @property
    def to_load(self) -> tuple[TablePlan, ...]:
        """The tables that will be loaded."""
        return tuple(table for table in self.tables if table.complete is None)


def find_missing(session: ReadSession, publication: str, slot: str) -> tuple[str | None, str | None]:
    """Return the name of the publication, and that of the slot; None where it is there.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(no_publication, no_slot)] = session.query(_MISSING, (publication, slot))
    return publication if no_publication else None, slot if no_slot else None


def plan_tables(
    session: ReadSession,
    tables: Mapping[TableName, MirroredTable],
    known: Mapping[TableName, TablePosition],
    actions: Mapping[TableName, Action],
    *,
    has_slot: bool,
) -> tuple[TablePlan, ...]:
    """Return what a start does with each table that does not wait.

    Args:
        session: of the database.
        tables: the tables that the file chooses.
        known: what the lake has of them.
        actions: what is to be done with each of them.
        has_slot: whether the log goes on; else all are loaded.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    sizes = read_sizes(session, tables)
    plans = []
    for name, action in sorted(actions.items()):
        if not isinstance(action, Wait):
            complete = known[name].complete if has_slot and not isinstance(action, Load) else None
            size = sizes.get(name, TableSize())
            plans.append(TablePlan(name, tables[name].part.mode, size, complete, _why(action)))
    return tuple(plans)


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
