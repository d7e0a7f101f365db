"""Do alerts and dashboard name metrics that a run has, and pages that exist?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.activity import ActivityReport
from headrace.state import Counters
from headrace.status import IndexPhase, StatusBoard
from headrace.status.board import Positions, UnitPhase, UnitStatus
from headrace.status.metrics import registry
from headrace.status.mirror_board import MirrorBoard, TableStatus
from headrace.status.phases import Phase
from support.console_states import SLOT

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/rules.yml"
DASHBOARD = ROOT / "deploy/grafana/headrace.json"
CHART = ROOT / "deploy/helm/headrace"
_METRIC = re.compile(r"\bheadrace_\w+")


@pytest.fixture(scope="module")
def exposed() -> str:
    """Return what `/metrics` of a run and of a mirror answers when every value is known."""
    board = StatusBoard(["users"], secondary=["copy"])
    board.index("users", phase=IndexPhase.BACKFILLING, seconds_left=1.0, drift=1)
    board.set_positions(Positions(confirmed=1, applied=1, current=3))
    board.set_positions(Positions(confirmed=1, applied=2, current=3))
    board.note(slot=SLOT, units=(UnitStatus("", "users", UnitPhase.BACKFILLING),))
    board.set_counts(Counters())
    board.record_error(HeadraceError(Kind.INTERNAL, "no"))
    board.count_rebuild("users", "gap")
    board.secondary("copy", deferred=1)
    board.count_request("reindex", "accepted")
    board.sinks.take(
        ActivityReport(run="r", sink="primary", writer="w", bulk_bytes=1, in_flight=1, retries=1, lasts=60.0)
    )
    mirrors = CollectorRegistry()
    mirror = MirrorBoard("headrace_mirror")
    mirror.show(Phase.LIVE, {"orders": TableStatus("live", 1)})
    mirrors.register(mirror)
    return generate_latest(registry(board)).decode() + generate_latest(mirrors).decode()


def families(exposed: str) -> set[str]:
    """Return the names of the metrics, as their samples are called in queries without a suffix."""
    return {
        f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
        for name, kind in re.findall(r"^# TYPE (headrace_\w+) (\w+)", exposed, re.MULTILINE)
    }


@pytest.fixture(scope="module")
def samples(exposed: str) -> set[str]:
    return set(re.findall(r"^(headrace_\w+)", exposed, re.MULTILINE))


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    """Return every expression of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_on_metrics_that_a_run_has(rule: dict[str, Any], samples: set[str]) -> None:
    named = set(_METRIC.findall(rule["expr"]))
    assert named
    assert named - samples == set()


def test_the_dashboard_is_on_metrics_that_a_run_has(samples: set[str]) -> None:
    named = {name for text in expressions() for name in _METRIC.findall(text)}
    assert named - samples == set()


def test_the_dashboard_shows_every_metric_of_a_run(exposed: str) -> None:
    named = {name for text in expressions() for name in _METRIC.findall(text)}
    of_run = {name for name in families(exposed) if not name.startswith("headrace_mirror_")}
    assert {name for name in of_run if not any(known.startswith(name) for known in named)} == set()


def test_the_documentation_lists_exactly_the_metrics_of_a_run(exposed: str) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    listed = re.findall(r"^\| (`headrace_[^|]*) \|", page, re.MULTILINE)
    assert {name for cell in listed for name in _METRIC.findall(cell)} == families(exposed)


def test_names_are_conventional(exposed: str) -> None:
    kinds = dict(re.findall(r"^# TYPE (headrace_\w+) (\w+)", exposed, re.MULTILINE))
    assert {name for name, kind in kinds.items() if (kind == "counter") != name.endswith("_total")} == set()
    units = {
        "milliseconds",
        "ms",
        "minutes",
        "hours",
        "kilobytes",
        "kb",
        "mb",
        "megabytes",
        "percent",
        "second",
    }
    assert {name for name in kinds if units & set(name.split("_"))} == set()


def test_the_labels_that_alerts_and_dashboard_select_by_are_those_of_the_metrics(exposed: str) -> None:
    texts = [*expressions(), *(rule["expr"] for rule in rules())]
    selected = {
        (metric, label)
        for text in texts
        for metric, selectors in re.findall(r"\b(headrace_\w+)\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)\s*=", selectors)
    }
    shown = {
        (metric, label)
        for metric, labels in re.findall(r"^(headrace_\w+)\{([^}]*)\}", exposed, re.MULTILINE)
        for label in re.findall(r"(\w+)=", labels)
    }
    of_prometheus = {"job", "instance"}
    assert ("headrace_state", "state") in selected
    assert {pair for pair in selected if pair[1] not in of_prometheus} - shown == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_bad_it_is_and_leads_to_a_heading(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
    assert not heading or heading in anchors


def test_every_alert_has_a_test_of_promtool_and_a_line_in_the_documentation() -> None:
    tests = (ROOT / "deploy/prometheus/rules_test.yml").read_text()
    page = (ROOT / "docs/guides/deploy.md").read_text()
    alerts = {rule["alert"] for rule in rules()}
    assert {name for name in alerts if name not in tests} == set()
    assert set(re.findall(r"`(Headrace[A-Z]\w+)`", page)) == alerts


def test_the_chart_and_prometheus_read_the_same_rules_and_the_same_dashboard() -> None:
    assert RULES.resolve() == CHART / "files/rules.yml"
    assert DASHBOARD.resolve() == CHART / "files/headrace.json"
    template = (CHART / "templates/monitoring.yaml").read_text()
    assert '.Files.Get "files/rules.yml"' in template
    assert '.Files.Get "files/headrace.json"' in template


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert taken & cells == set(), panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
