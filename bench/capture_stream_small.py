"""How fast is a stream of one-row transactions read? `python bench/capture_stream_small.py [--quick]`.

As `capture_stream.py`, but each change is a transaction of its own: three messages for one row.
"""

from __future__ import annotations

from harness.streaming import compare

if __name__ == "__main__":
    compare("capture_stream_small", __doc__ or "", changes=500_000, quick=100_000, per_transaction=1, bar=1.0)
