"""Another program that writes a lake's tables, as the formats' libraries let one do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table.snapshots import Operation, Summary

from headrace.mirror.iceberg.table import IcebergTable
from headrace.mirror.lake import LakeTable


def delete(table: LakeTable, condition: str) -> None:
    """Delete the rows that meet a condition."""
    if isinstance(table, IcebergTable):
        table.table.delete(condition)
    else:
        DeltaTable(table.uri).delete(condition)


def set_value(table: LakeTable, condition: str, name: str, value: Any) -> None:
    """Give a column another value in one row."""
    if isinstance(table, IcebergTable):
        row = table.table.scan(condition).to_arrow()
        at = row.column_names.index(name)
        row = row.set_column(at, row.schema.field(at), pa.array([value], row.schema.field(at).type))
        table.table.delete(condition)
        table.table.append(row)
    else:
        DeltaTable(table.uri).update(new_values={name: value}, predicate=condition)


def rewrite(table: LakeTable) -> None:
    """Write the rows to other files, and change none."""
    if isinstance(table, IcebergTable):
        rows = table.table.scan().to_arrow()
        before = {task.file.file_path: task.file for task in table.table.scan().plan_files()}
        with table.table.transaction() as transaction:
            transaction.append(rows)
            [appended] = transaction._snapshot_producers
            transaction._updates, transaction._requirements, transaction._snapshot_producers = (), (), []
            with transaction.update_snapshot().overwrite() as replacing:
                replacing._summary = lambda _: Summary(Operation.REPLACE)  # type: ignore[method-assign, misc, assignment]
                for file in before.values():
                    replacing.delete_data_file(file)
                for file in appended._added_data_files:
                    replacing.append_data_file(file)
    else:
        DeltaTable(table.uri).optimize.z_order(["id"])
