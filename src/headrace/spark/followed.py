"""Which tables does a checkpoint follow, and what becomes of one that is asked for besides?

Every offset names them, so that a restart can tell a table that was added to the options: what it held before
is not in the checkpoint's past, and its changes before it was published are in no log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture import Origin
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.table_pattern import parse_tables, written
from headrace.postgres.asked import Asked
from headrace.postgres.provision import Prepared
from headrace.postgres.selection import Selection
from headrace.spark.cdc_options import CdcOptions
from headrace.spark.initial import Progress
from headrace.spark.shape import RowsPlan

_KEY = "tables"


def with_tables(tables: Iterable[TableName]) -> dict[str, Any]:
    """What stands in an offset; nothing where all tables of the publication are followed."""
    names = [written(table) for table in sorted(tables)]
    return {_KEY: names} if names else {}


def tables_of(stored: Mapping[str, Any]) -> tuple[TableName, ...] | None:
    """The tables that an offset names; None where it is of a version, or of options, that name none."""
    names = stored.get(_KEY)
    if names is None:
        return None
    exact = (pattern.exact for name in names for pattern in parse_tables(str(name)))
    return tuple(table for table in exact if table is not None)


def added(stored: Mapping[str, Any], now: Sequence[TableName], options: CdcOptions) -> tuple[TableName, ...]:
    """The tables that are asked for now and that an offset does not follow.

    Raises:
        HeadraceError: USAGE, where there are some and the options do not say what to do with them.
    """
    known = tables_of(stored)
    found = () if known is None else tuple(table for table in now if table not in known)
    if found and options.form == "rows":
        raise HeadraceError(
            Kind.USAGE,
            f"the checkpoint follows {_listed(known or ())}, not {_listed(found)}",
            "Give each table a checkpoint and a slot of its own, or follow many by envelope=changes.",
        )
    if found and options.new_tables == "refuse":
        raise HeadraceError(
            Kind.USAGE,
            f"the checkpoint does not follow {_listed(found)}: the table is new in the option tables",
            "Set newTables=snapshot to read its rows first, newTables=follow to follow it from now on, or "
            "leave it out.",
        )
    return found


def reading(
    progress: Progress | None,
    stored: Mapping[str, Any],
    new: Sequence[TableName],
    options: CdcOptions,
) -> Progress | None:
    """Which rows are to be read, where `new` tables come to what an offset says of its reading."""
    if not new:
        return progress
    if options.new_tables == "snapshot":
        if progress is None:
            return Progress(tables=tuple(new))
        return replace(progress, tables=(*progress.tables, *new)) if progress.tables else progress
    if progress is None or progress.tables:
        return progress
    return replace(progress, tables=tables_of(stored) or ())


def asked(options: CdcOptions, plan: RowsPlan | None) -> dict[TableName, Asked]:
    """What the publication has to send of tables of which not everything is wanted."""
    if plan is not None:
        return {plan.shape.table: Asked(frozenset(plan.shape.columns), plan.selection)}
    columns, conditions = options.listed_columns, options.conditions
    return {
        table: Asked(
            columns.get(table, frozenset()),
            Selection(columns.get(table), conditions.get(table)),
            only_these=table in columns,
        )
        for table in columns.keys() | conditions.keys()
    }


def origin_of(prepared: Prepared) -> Origin:
    """Whose log a slot reads; with which publication is not known before it is read."""
    server = prepared.server
    return Origin(str(server.system_identifier), server.timeline, server.database_oid)


def without(batches: Iterable[pa.RecordBatch], tables: Collection[TableName]) -> list[pa.RecordBatch]:
    """The changes but those of `tables`: a batch that is repeated has what it had the first time.

    A truncated partition has a name of its own, so what was followed then cannot be told by its name.
    """
    found = []
    for batch in batches:
        dropped = pa.array([False] * batch.num_rows)
        for table in tables:
            is_schema = pc.equal(batch.column("schema"), table.schema)
            dropped = pc.or_(dropped, pc.and_(is_schema, pc.equal(batch.column("table"), table.name)))
        found.append(batch.filter(pc.invert(dropped)))
    return found


def _listed(tables: Iterable[TableName]) -> str:
    return ", ".join(map(str, tables))
