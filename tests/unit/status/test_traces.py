"""When is a batch traced: where OpenTelemetry's own variables say so, and it is installed."""

from __future__ import annotations

import sys

import pytest

from headrace.reporter import SilentReporter
from headrace.status.traces import open_traces

NOWHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


class Warned(SilentReporter):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_SERVICE_NAME": "headrace"},
        {**NOWHERE, "OTEL_SDK_DISABLED": "true"},
        {**NOWHERE, "OTEL_SDK_DISABLED": "TRUE"},
        {**NOWHERE, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_traces_are_off(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded then, so that the extra need not be there."""
    monkeypatch.delitem(sys.modules, "headrace.status.spans", raising=False)
    warned = Warned()
    with open_traces(variables, "slot", warned) as traces:
        assert traces is None
    assert warned.warnings == []
    assert "headrace.status.spans" not in sys.modules


@pytest.mark.parametrize(
    "variables",
    [
        NOWHERE,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
        {**NOWHERE, "OTEL_SDK_DISABLED": "false"},
        {**NOWHERE, "OTEL_TRACES_EXPORTER": "console,otlp"},
        {**NOWHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {
            **NOWHERE,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
    ],
)
def test_traces_are_on(variables: dict[str, str]) -> None:
    warned = Warned()
    with open_traces(variables, "slot", warned) as traces:
        assert traces is not None
    assert warned.warnings == []


def test_without_the_extra_the_run_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headrace.status.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    warned = Warned()
    with open_traces(NOWHERE, "slot", warned) as traces:
        assert traces is None
    [warning] = warned.warnings
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in warning
    assert "Install headrace[otel]" in warning


def test_another_protocol_is_refused_by_name() -> None:
    warned = Warned()
    with open_traces({**NOWHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "slot", warned) as traces:
        assert traces is None
    [warning] = warned.warnings
    assert "'grpc'" in warning
    assert "http/protobuf" in warning


def test_a_variable_that_cannot_be_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-5")
    warned = Warned()
    with open_traces(NOWHERE, "slot", warned) as traces:
        assert traces is None
    [warning] = warned.warnings
    assert "max_queue_size" in warning
