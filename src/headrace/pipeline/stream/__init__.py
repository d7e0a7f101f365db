"""The driver's side of the running query: its start, its progress, and the work beside it."""
