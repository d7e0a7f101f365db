from __future__ import annotations

from headrace.cli.status import _lines
from headrace.status.phases import Phase

LAG = {"bytes": None, "seconds": None}


def test_a_run_that_serves_while_it_backfills_says_both() -> None:
    """`backfilling` alone seemed to say that searches do not work."""
    status = {"phase": Phase.BACKFILLING, "ready": True, "paused": None, "reason": None, "lag": LAG}
    assert [*_lines(status)] == ["ready; a new generation is being backfilled"]
