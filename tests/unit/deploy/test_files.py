"""Are the files of `deploy/` well-formed, and do they agree with one another and with Headrace?"""

from __future__ import annotations

import configparser
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.config.load import load_deployment
from headrace.schema.load import load_schema
from headrace.version import __version__

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/headrace"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
VALUES_SCHEMA = json.loads((CHART / "values.schema.json").read_text())
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


@functools.cache
def checker() -> Any:
    """What checks values of the chart; its package is imported here, as that takes two seconds."""
    from jsonschema import Draft7Validator  # noqa: PLC0415

    return Draft7Validator(VALUES_SCHEMA)


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay values over others as Helm does."""
    both = below.keys() & above.keys()
    nested = {
        key: merged(below[key], above[key])
        for key in both
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return below | above | nested


def load_files(files: dict[str, str], folder: Path) -> list[str]:
    """Write a deployment and its files, load all, and return the names of the indexes."""
    for name, text in files.items():
        (folder / name).write_text(text)
    deployment = load_deployment(folder / "headrace.toml", {})
    for index in deployment.enabled:
        load_schema(folder / index.schema_path, index.name)
    return [index.name for index in deployment.enabled]


# The chart.


@pytest.mark.parametrize("name", [None, "full", "standalone"])
def test_the_values_of_the_chart_are_those_of_its_schema(name: str | None) -> None:
    more = yaml.safe_load((CHART / f"ci/{name}-values.yaml").read_text()) if name else {}
    checker().check_schema(VALUES_SCHEMA)
    checker().validate(merged(VALUES, more))


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3},  # one works, one stands by
        {"replica": 1},
        {"config": "nothing"},
        {"files": {"headrace.toml": ""}},
        {"secretEnv": {"DATABASE_URL": "postgresql://me:secret@db/shop"}},  # by reference only
        {"terminationGracePeriodSeconds": 10},  # shorter than a run needs
        {"spark": {"conf": {"executor.memory": "1g"}}},
        {"spark": {"master": "yarn"}},
    ],
    ids=str,
)
def test_wrong_values_of_the_chart_are_refused(wrong: dict[str, Any]) -> None:
    assert not checker().is_valid(merged(VALUES, wrong))


@pytest.mark.parametrize("block", [0, 1])
def test_the_values_of_the_documentation_are_values(block: int, tmp_path: Path) -> None:
    page = (ROOT / "docs/guides/deploy.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    values = merged(VALUES, yaml.safe_load(blocks[block]))
    checker().validate(values)
    assert load_files({"headrace.toml": values["config"], **values["files"]}, tmp_path) == ["users"]


def test_every_value_is_in_the_schema_and_is_used_by_a_template() -> None:
    assert set(VALUES_SCHEMA["properties"]) - {"global"} == set(VALUES)
    text = "\n".join(file.read_text() for file in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.(\w+)", text))
    assert used == set(VALUES)


def test_the_deployment_of_the_values_is_one(tmp_path: Path) -> None:
    assert load_files({"headrace.toml": VALUES["config"], **VALUES["files"]}, tmp_path) == ["users"]


def test_the_variables_of_the_deployment_are_taken_from_secrets() -> None:
    named = set(re.findall(r'env = "(\w+)"', VALUES["config"]))
    assert named == {"OPENSEARCH_PASSWORD"}
    assert VALUES["secretEnv"].keys() == named | {"DATABASE_URL"}


def test_the_chart_has_the_version_of_headrace() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


# The image.


def test_the_image_the_chart_and_the_compose_file_name_the_same_user() -> None:
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    context = VALUES["podSecurityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (10001, 10001, True)
    assert "uid=10001,gid=10001" in str(COMPOSE["services"]["headrace"]["tmpfs"])


def test_the_image_is_started_so_that_signals_reach_the_run() -> None:
    """The shell form of an entry point gives them to a shell, which passes none on."""
    [words] = re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.MULTILINE)
    assert json.loads(words)[0] == "/usr/bin/tini"
    assert 'exec headrace "$@"' in (DEPLOY / "entrypoint").read_text()
    assert (DEPLOY / "entrypoint").stat().st_mode & 0o111 == 0o111
    assert "STOPSIGNAL SIGTERM" in CONTAINERFILE


def test_what_the_image_copies_is_sent_along() -> None:
    """All else is left out of the build's context, so that no secret gets into it."""
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    words = [word for line in copied for word in line.split() if not word.startswith("$")]
    assert len(words) > 4
    assert set(words) <= set(sent)
    assert [name for name in sent if not (ROOT / name).exists()] == []


def test_the_packages_of_the_image_are_those_that_the_tests_run_with() -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / name).read_text().splitlines()
        return {line.split()[0] for line in lines if re.match(r"\w\S*==", line)}

    assert "pyspark" in " ".join(pins("deploy/requirements.lock"))
    assert pins("deploy/requirements.lock") <= pins("requirements.lock")


# The compose file.


def test_the_deployment_of_the_compose_file_is_one(tmp_path: Path) -> None:
    mounted = COMPOSE["services"]["headrace"]["configs"]
    files = {Path(entry["target"]).name: COMPOSE["configs"][entry["source"]]["content"] for entry in mounted}
    assert load_files(files, tmp_path) == ["users"]


def test_the_compose_file_opens_ports_to_this_machine_alone() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service["ports"]]
    assert len(ports) == 3
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


# The unit.


class _Repeated(dict[str, Any]):
    """Keeps every value of a key that stands several times."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, list) and key in self:
            value = [*self[key], *value]
        super().__setitem__(key, value)


@pytest.fixture
def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(dict_type=_Repeated, strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd/headrace.service")
    return parser


def test_the_unit_stops_and_restarts_as_a_run_wants_it(unit: configparser.RawConfigParser) -> None:
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["KillSignal"] == "SIGTERM"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > 30


def test_the_unit_is_hardened_and_leaves_java_its_compiler(unit: configparser.RawConfigParser) -> None:
    service = unit["Service"]
    for directive in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces"):
        assert service[directive] == "yes", directive
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert "MemoryDenyWriteExecute" not in service


def test_the_unit_reads_secrets_from_a_file_and_holds_none(unit: configparser.RawConfigParser) -> None:
    service = unit["Service"]
    assert service["EnvironmentFile"] == "/etc/headrace/secrets.env"
    assert "PASSWORD" not in service["Environment"]
    assert service["User"] == "headrace"
    assert re.search(r"^u headrace ", (DEPLOY / "systemd/headrace.sysusers").read_text(), re.MULTILINE)
