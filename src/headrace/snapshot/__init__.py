"""Read tables as of one exported snapshot, in parts that can be read in parallel."""

from headrace.snapshot.exporting import exported_snapshot
from headrace.snapshot.planning import PlannedPart, check_table, plan_ranges, plan_tables
from headrace.snapshot.ranges import (
    RangesDone,
    are_rewritten,
    check_filenode,
    files_of,
    read_filenodes,
)
from headrace.snapshot.reading import RowSelection, check_readable, read_part

__all__ = [
    "PlannedPart",
    "RangesDone",
    "RowSelection",
    "are_rewritten",
    "check_filenode",
    "check_readable",
    "check_table",
    "exported_snapshot",
    "files_of",
    "plan_ranges",
    "plan_tables",
    "read_filenodes",
    "read_part",
]
