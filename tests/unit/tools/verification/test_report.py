"""A report that travels as JSON is the same at the other end."""

from __future__ import annotations

import json

import pytest

from headrace.assembly.digests import Sample
from headrace.tools.verification.report import Drift, Repair, Report, Undecided, as_data, report_of


@pytest.mark.parametrize("repairing", [True, False])
def test_a_report_is_read_from_its_data(repairing: bool) -> None:
    report = Report("users", "p_users", "p_users_1", 0x10, documents=5, ids=6, in_flight=1, changing=2)
    report.sample, report.undecided = Sample(5.0, "seed"), Undecided(3, "nothing runs", "Start it.")
    report.unreadable = Drift(1, 0, [{"id": "1", "why": "a value"}])
    report.missing = Drift(4, 1, [{"id": "2"}])
    report.seconds = 1.5
    if repairing:
        report.repair = Repair(2, fenced=1)
        report.repair.count_unrepaired("3", "refused", fenced=False)
    assert report_of(json.loads(json.dumps(as_data(report)))) == report
