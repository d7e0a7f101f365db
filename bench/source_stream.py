"""How fast do typed rows stream into Spark? `python bench/source_stream.py [--quick]`.

The replication stream for both, 100 rows in a transaction, eight columns; ours ends in Spark's noop sink.
"""

from __future__ import annotations

from harness.source import compare

if __name__ == "__main__":
    compare("source_stream", __doc__ or "", changes=1_000_000, quick=200_000, bar=0.8, backlog="0")
