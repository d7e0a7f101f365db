"""Do the alerts fire in the faults that they are for, and only there?

The recordings are of real runs: `HEADRACE_RECORD=1 pytest tests/e2e/test_alerts.py` replaces them.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.means import PROMTOOL, needs
from support.metrics_recorder import MetricsRecorder, Recording
from support.promtool import RECORDINGS, fired, rules, used_metrics

EXPECTED: dict[str, set[str]] = {
    "quiet": set(),
    "lock": {"HeadraceStalled"},
    "cluster": {"HeadraceStalled"},
    "server": {"HeadraceStalled"},
    "transaction": {"HeadraceStalled"},
    "degraded": {"HeadraceDegraded"},
    "refused": {"HeadraceDocumentsRejected", "HeadraceQuarantine"},
    "restarts": {"HeadraceRestarts", "HeadraceDown"},
    "not_ready": {"HeadraceNotReady"},
    "sink_away": {"HeadraceSinkAway"},
    "backfill": {"HeadraceBackfillStalled"},
    "behind": {"HeadraceBehind"},
    "gap": {"HeadraceGap"},
}
NOT_RECORDED = {
    *("HeadraceDrift", "HeadraceIndexWaits", "HeadraceMirrorTableWaits"),
    *("HeadraceSinkDeferred", "HeadraceSlotKeepsLog"),
}
"""A quarter of an hour, half a million documents, gigabytes of log: they are made up in
`deploy/prometheus/rules_test.yml`."""


def test_every_alert_has_a_recorded_fault_or_is_known_to_have_none() -> None:
    assert set().union(*EXPECTED.values()) | NOT_RECORDED == {rule["alert"] for rule in rules()}
    assert {file.stem for file in RECORDINGS.iterdir()} == EXPECTED.keys()


@needs(PROMTOOL)
@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_raises_its_alerts_and_no_other(fault: str, tmp_path: Path) -> None:
    assert fired(Recording.load(RECORDINGS / f"{fault}.json"), tmp_path) == EXPECTED[fault]


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_recording_has_the_metrics_of_the_rules(fault: str) -> None:
    """A metric that was renamed since leaves its alert without anything to fire on."""
    recorded = {series.partition("{")[0] for series in Recording.load(RECORDINGS / f"{fault}.json").series}
    of_others = {
        *("headrace_drift_documents", "headrace_index_waits", "headrace_mirror_table"),
        *("headrace_sink_away", "headrace_sink_deferred_documents"),
    }
    needed = used_metrics(*EXPECTED[fault]) if EXPECTED[fault] else used_metrics() - of_others
    assert needed <= recorded <= used_metrics()


def test_a_recorder_writes_what_promtool_reads() -> None:
    """A target that is down, comes, changes a value twice, and goes."""
    text = '# TYPE headrace_a gauge\nheadrace_a{b="c"} '
    answers: list[str | OSError] = ["", OSError(), *[f"{text} 1795360000.25"] * 3, f"{text} 2e10", ""]
    asked = threading.Event()

    def scrape() -> str:
        if not answers:
            asked.set()
            return ""
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    recorder = MetricsRecorder(scrape, step=0.001)
    with recorder:
        assert asked.wait(20)
    recording = recorder.recording({"headrace_a", "up"})
    target = 'instance="recorded", job="headrace"'
    assert recording.series[f'headrace_a{{b="c", {target}}}'].startswith(
        "_x2 1795360000.25x2 20000000000 stale _"
    )
    assert recording.series[f"up{{{target}}}"].startswith("0x1 1x3 0")
