"""What did the tables hold at one moment? Exported snapshots, and parts that are read side by side."""

from headrace.snapshot.exporting import exported_snapshot
from headrace.snapshot.planning import check_table, plan_parts
from headrace.snapshot.ranges import check_filenode, plan_ranges
from headrace.snapshot.reading import Selection, check_readable, read_part

__all__ = [
    "Selection",
    "check_filenode",
    "check_readable",
    "check_table",
    "exported_snapshot",
    "plan_parts",
    "plan_ranges",
    "read_part",
]
