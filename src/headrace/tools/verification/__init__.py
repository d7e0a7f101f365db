"""Compare an index with the database, and repair documents that differ."""
