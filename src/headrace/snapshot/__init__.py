"""What did the tables hold at one moment? Exported snapshots, and parts of tables that are read side by side."""

from headrace.snapshot.exporting import exported_snapshot
from headrace.snapshot.planning import plan_parts
from headrace.snapshot.ranges import check_filenode, plan_ranges
from headrace.snapshot.reading import Selection, check_readable, read_part

__all__ = [
    "Selection",
    "check_filenode",
    "check_readable",
    "exported_snapshot",
    "plan_parts",
    "plan_ranges",
    "read_part",
]
