"""Mistakes in files and words: exit code 2, the place, the remedy; nothing is connected to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from integration.cli.command_line import SCHEMA, Deployment


@pytest.fixture
def files(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "deployment", "postgresql://me:s3cret-word@127.0.0.1:9/shop")
    deployment.write()
    return deployment


def test_a_yaml_typo_is_told_with_file_line_and_column(files: Deployment) -> None:
    files.schema = SCHEMA.replace("- text: name", "- text name: [")
    files.write()
    assert "people.schema.yml:7:" in files.type("check").refused(2, "SCHEMA")


def test_an_unknown_key_of_the_deployment_file_is_told_with_its_line_and_what_was_meant(
    files: Deployment,
) -> None:
    files.source = 'replica_identitty = "auto"'
    files.write()
    text = files.type("run").refused(2, "CONFIG")
    assert "headrace.toml:6: unknown key 'source.replica_identitty'" in text
    assert "'replica_identity'" in text


def test_all_mistakes_of_a_file_come_at_once_also_as_json(files: Deployment) -> None:
    files.schema = SCHEMA.replace("long", "lnog").replace("text", "txet")
    files.write()
    told = files.type("check", "--offline", "--format", "json")
    found = json.loads(told.out)
    assert (told.code, found["ok"]) == (2, False)
    long, text = found["findings"]
    assert (long["level"], long["code"], long["text"], long["remedy"]) == (
        "error",
        "HEADRACE_SCHEMA",
        "unknown type 'lnog'",
        "Did you mean 'long'?",
    )
    assert (long["file"], long["line"], long["column"], long["sql"]) == ("people.schema.yml", 5, 5, [])
    assert (text["file"], text["line"], text["column"]) == ("people.schema.yml", 6, 5)


def test_a_file_that_is_right_passes_without_database_and_cluster(files: Deployment) -> None:
    told = files.type("check", "--offline")
    assert (told.code, told.errors) == (0, [])
    assert "people: the files are valid" in told.err


def test_a_missing_deployment_file_names_the_remedy(files: Deployment) -> None:
    assert "headrace init" in files.type("setup", "--config", "nope.toml").refused(2, "CONFIG")


def test_a_variable_that_is_not_set_is_named(files: Deployment) -> None:
    file = files.folder / "headrace.toml"
    file.write_text(re.sub("(?m)^connection_url = .*", 'connection_url = { env = "SHOP" }', file.read_text()))
    assert "Set SHOP" in files.type("check").refused(2, "CONFIG")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["run", "--slot", "Not A Slot"], "CONFIG"),
        (["check", "--publication", "x" * 64], "USAGE"),
        (["run", "--public-address", "nonsense"], "USAGE"),
        (["run", "--public-hosts", "a.example, http://b.example"], "USAGE"),
        (["init", "mysql://me@127.0.0.1/shop", "--table", "people"], "CONFIG"),
        (
            ["init", "postgresql://me@127.0.0.1:9/shop", "--table", "people", "--sink", "localhost:9200"],
            "USAGE",
        ),
    ],
)
def test_a_word_that_cannot_be_meant_is_refused_first(files: Deployment, words: list[str], kind: str) -> None:
    files.type(*words).refused(2, kind)


@pytest.mark.parametrize(
    "words", [["run", "--publc-address", "x"], ["frobnicate"], ["init"], ["demo", "--users", "0"]]
)
def test_wrong_usage_ends_with_2_and_one_line_that_says_why(files: Deployment, words: list[str]) -> None:
    told = files.type(*words)
    assert told.out == ""
    assert f"`headrace{'' if words == ['frobnicate'] else f' {words[0]}'} -h`" in told.refused(2, "USAGE")


def test_no_words_in_an_empty_folder_lead_to_the_demo_and_a_first_deployment(files: Deployment) -> None:
    (files.folder / "headrace.toml").unlink()
    told = files.type()
    assert (told.code, told.err) == (0, "")
    assert "headrace demo" in told.out
    assert "headrace init" in told.out


def test_no_words_beside_a_deployment_file_lead_to_the_check(files: Deployment) -> None:
    told = files.type()
    assert told.code == 0
    assert told.out.splitlines()[1:2] == ["  headrace check"]


@pytest.mark.parametrize("command", ["run", "check", "setup", "teardown", "init", "demo"])
def test_each_command_explains_itself_and_its_variables(files: Deployment, command: str) -> None:
    told = files.type(command, "--help")
    assert told.code == 0
    assert "HEADRACE_LOG_LEVEL" in told.out


def test_the_version_is_one_line(files: Deployment) -> None:
    told = files.type("--version")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("headrace 0.")
