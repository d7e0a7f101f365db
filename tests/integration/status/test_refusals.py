"""Is a person told of each document that a run goes on without?"""

from __future__ import annotations

from dataclasses import replace

from headrace.embedded.processes import until
from headrace.sinks.activity import report_rejections
from headrace.status.sinks import ReportsPort, SinkReports


def test_refused_documents_are_heard_of() -> None:
    """A run that left documents out said nothing at all."""
    reports = SinkReports()
    told = ["users 1: left out: mapper_parsing_exception", "users 2: in quarantine: " + "x" * 5_000]
    with ReportsPort(reports) as port:
        to = port.to("primary")
        report_rejections(replace(to, run="another"), ["users 3: of another run"])
        report_rejections(None, ["users 4: nobody listens"])
        report_rejections(to, told)
        found: list[str] = []

        def are_there() -> bool:
            found.extend(reports.take_rejections())
            return len(found) == len(told)

        assert until(are_there, 10)
    assert found[0] == told[0]
    assert told[1].startswith(found[1])
    assert reports.take_rejections() == []
