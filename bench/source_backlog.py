"""How fast does a backlog come into Spark? `python bench/source_backlog.py [--quick]`.

As `source_stream.py`, but ours may read through SQL what waits.
"""

from __future__ import annotations

from harness.source import compare

if __name__ == "__main__":
    compare("source_backlog", __doc__ or "", changes=2_000_000, quick=500_000, bar=1.5, backlog="64m")
