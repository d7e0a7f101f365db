"""What did the tables hold when the slot began? Exported snapshots and ranges of rows."""

from headrace.snapshot.ranges import check_filenode, plan_ranges

__all__ = ["check_filenode", "plan_ranges"]
