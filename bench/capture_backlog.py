"""How fast is a backlog read? `python bench/capture_backlog.py [--quick]`.

As `capture_stream.py`, but ours is allowed what it does by itself where so much waits: to read through SQL.
"""

from __future__ import annotations

from harness.streaming import compare

if __name__ == "__main__":
    compare(
        "capture_backlog",
        __doc__ or "",
        changes=2_000_000,
        quick=500_000,
        per_transaction=100,
        bar=2.5,
        backlog_bytes=64 << 20,
    )
