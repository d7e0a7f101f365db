"""Run the rules of `deploy/` over recorded metrics, with Prometheus' own promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.means import PROMTOOL
from support.metrics_recorder import STEP_SECONDS, Recording

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/rules.yml"
RECORDINGS = ROOT / "tests/data/metrics"
_LASTS_SECONDS = 3900
"""For how long the last values are held, as if the fault lasted: the longest `for` is an hour."""


def rules() -> list[dict[str, Any]]:
    """Return the rules."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def used_metrics(*alerts: str) -> set[str]:
    """Return the metrics that the rules of these alerts name; of all rules where none is given."""
    chosen = [rule for rule in rules() if not alerts or rule["alert"] in alerts]
    return {name for rule in chosen for name in re.findall(r"\b(up|headrace_\w+)\b", rule["expr"])}


def fired(recording: Recording, folder: Path) -> set[str]:
    """Return the alerts that fire at any time of a recording whose last values are held for an hour.

    promtool compares and does not tell, so it is given what cannot be, and names what it got.
    """
    assert PROMTOOL.path is not None
    steps = _LASTS_SECONDS // STEP_SECONDS
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [
            {"series": series, "values": _hold(values, steps)} for series, values in recording.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[3h]))',
                "eval_time": f"{(recording.scrapes - 1 + steps) * STEP_SECONDS}s",
                "exp_samples": [{"labels": '{alertname="impossible"}', "value": 1}],
            }
        ],
    }
    file = folder / "recorded_test.yml"
    tests = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": [test]}
    file.write_text(yaml.safe_dump(tests))
    command = [PROMTOOL.path, "test", "rules", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    _, found, got = output.partition("got:")
    assert found, output
    return set(re.findall(r'alertname=\\?"(\w+)', got))


def _hold(values: str, steps: int) -> str:
    last = values.rsplit(maxsplit=1)[-1].partition("x")[0]
    return values if last in {"stale", "_"} else f"{values} {last}x{steps - 1}"
