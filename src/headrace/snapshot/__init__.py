"""What did the tables hold when the slot began? Exported snapshots and ranges of rows."""
