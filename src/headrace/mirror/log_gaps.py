"""Tell whether the log lacks what the lake's rows need: then a table is read again. Pure.

A look at the catalog does not tell it: what was altered may be as it was again by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, unwrapped
from headrace.mirror.column_names import BETWEEN, ColumnNames, rows_names
from headrace.mirror.drift import altered_columns, column_numbers
from headrace.mirror.net_changes import Position
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import MirroredTable
from headrace.model.changes import Op
from headrace.model.names import TableName

Changes = Sequence[pa.RecordBatch]
"""Changes of one table, in `CHANGES_SCHEMA`."""


def changes_of_tables(batch: pa.Table) -> dict[TableName, list[pa.RecordBatch]]:
    """Return the changes of each table in a batch of `envelope=changes`."""
    changes: dict[TableName, list[pa.RecordBatch]] = {}
    for part in map(unwrapped, batch.to_batches()):
        for name, places in by_table(part):
            own = part if len(places) == len(part) else part.take(pa.array(places))
            changes.setdefault(name, []).append(own)
    return changes


def truncated_partitions(batch: pa.Table) -> dict[str, set[str]]:
    """Return the partitions that were truncated by themselves, by their tables."""
    found: dict[str, set[str]] = {}
    if len(batch):
        source = batch.column("source").combine_chunks()
        source = source.filter(pc.is_valid(pc.struct_field(source, "partition_of")))
        for row in source.to_pylist():
            found.setdefault(row["partition_of"], set()).add(str(TableName(row["schema"], row["table"])))
    return found


def changes_after(changes: Changes, position: Position) -> list[pa.RecordBatch]:
    """Return the changes that lie after a position; each batch that has any."""
    found = []
    for part in changes:
        lsn, sequence = part.column("_commit_lsn").to_numpy(), part.column("_commit_seq").to_numpy()
        is_after = (lsn > position[0]) | ((lsn == position[0]) & (sequence > position[1]))
        found.append(part.filter(pa.array(is_after)))
    return [part for part in found if len(part)]


def former_names(table: MirroredTable, noted: TablePosition) -> dict[str, str]:
    """Return the present name of each renamed column, by its name in changes before the alteration."""
    if not noted.altered or table.name not in noted.former.tables:
        return {}
    now = {number: name for name, number in column_numbers(table.catalog.tables[table.name]).items()}
    before = column_numbers(noted.former.tables[table.name])
    return {name: now[number] for name, number in before.items() if now.get(number, name) != name}


def find_gap(table: MirroredTable, changes: Changes, noted: TablePosition) -> str | None:
    """Return what the log lacks, in words; None: nothing.

    Args:
        table: the table.
        changes: those that the lake does not have.
        noted: what is noted of it.
    """
    if table.part.where is not None and any(_lacks_inserted(part, table.columns) for part in changes):
        # The log has such rows as inserted; what their update did not touch is not in it, nor in the lake.
        return f"rows came to satisfy `where` of {table.name} without a large value"
    if any(_is_emptied_behind(part, noted) for part in changes):
        return f"{table.name} was emptied before the moment of which the lake has some parts already"
    former = former_names(table, noted)
    if any(_lacks_key(part, table.key, former) for part in changes):
        return f"the log lacks keys of changed rows of {table.name}: REPLICA IDENTITY was altered"
    if not _tell_names(table, changes, noted):
        return f"columns of {table.name} may have been called otherwise when rows were written"
    return None


def _lacks_inserted(changes: pa.RecordBatch, columns: Collection[str]) -> bool:
    """Tell whether an inserted row lacks a column: a large value, or one that was added later."""
    rows = changes.filter(pc.equal(changes.column("op"), Op.INSERT.value)).column("after")
    names = pa.ListArray.from_arrays(rows.offsets, rows.keys)
    # a row has each name once, so that counting them is enough
    found = pc.is_in(names.flatten(), value_set=pa.array(sorted(columns), pa.string()))
    return bool(found.true_count < len(names) * len(columns))


def _is_emptied_behind(changes: pa.RecordBatch, noted: TablePosition) -> bool:
    """Tell whether a TRUNCATE lies before the moment of which the lake has some part already."""
    start = max((ahead.start for ahead in noted.ahead), default=0)
    is_emptied = pc.equal(changes.column("op"), Op.TRUNCATE.value)
    return bool(pc.any(pc.and_(is_emptied, pc.less(changes.column("_commit_lsn"), start))).as_py())


def _lacks_key(changes: pa.RecordBatch, key: Sequence[str], former: Mapping[str, str]) -> bool:
    """Tell whether the log lacks what tells changed rows apart: the old key, or where there is none all.

    REPLICA IDENTITY was another one then. It may be what it was again, so that the catalog does not tell.
    """
    op = changes.column("op")
    is_changed = pc.or_(pc.equal(op, Op.UPDATE.value), pc.equal(op, Op.DELETE.value))
    identities = pc.binary_join(changes.column("_identity").filter(is_changed), BETWEEN)
    carried = [text.split(BETWEEN) for text in pc.unique(identities).drop_null().to_pylist()]
    return any(not key or not {*key} <= {former.get(name, name) for name in names} for names in carried)


def _tell_names(table: MirroredTable, changes: Changes, noted: TablePosition) -> bool:
    """Tell whether the names in rows say which columns they are, though columns were renamed perhaps.

    The catalog does not tell: a column may have its name again, or may have got one that another had.
    """
    catalog = table.catalog.tables[table.name]
    now = {name: number for name, number in column_numbers(catalog).items() if name in table.sent}
    present = older = ColumnNames.between(now, now)
    if table.name in noted.former.tables:
        former = noted.former.tables[table.name]
        # A column that the log does not carry has no name there, at either look.
        unsent = set(column_numbers(catalog).values()) - set(now.values())
        older = ColumnNames.between(
            {name: number for name, number in column_numbers(former).items() if number not in unsent},
            now,
            altered_columns(former, catalog),
        )
    return all(
        names.tell(found, is_inserted=is_inserted)
        for part in changes
        for is_older in (pc.less(part.column("_commit_lsn"), noted.altered),)
        for names, is_chosen in ((older, is_older), (present, pc.invert(is_older)))
        for found, is_inserted in rows_names(part, is_chosen)
    )
