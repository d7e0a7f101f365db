"""How fast is a stream of large transactions read? `python bench/capture_stream.py [--quick]`.

The peer is pg_recvlogical, which decodes nothing and writes to /dev/null; ours ends as Arrow in the hands
of a reader. Eight columns, 100 rows in a transaction, the replication stream for both.
"""

from __future__ import annotations

from harness.streaming import compare

if __name__ == "__main__":
    compare("capture_stream", __doc__ or "", changes=1_000_000, quick=200_000, per_transaction=100, bar=1.0)
