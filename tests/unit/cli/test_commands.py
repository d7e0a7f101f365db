"""Does every command of docs/reference/commands.md stand in a group, with two examples that can be typed?"""

from __future__ import annotations

import re
import shlex
from dataclasses import fields

import pytest
import typer

from headrace.cli.app import app
from headrace.cli.context import Group, examples_of
from headrace.cli.indexes import ListedGeneration
from headrace.cli.schema import Shown
from headrace.mirror.verify import TableComparison
from headrace.state import Quarantined
from headrace.tools.index_cost import FieldCost

COMMANDS = typer.main.get_group(app).commands
EXAMPLES = [example for command in COMMANDS.values() for example in examples_of(command)]


def test_every_command_has_two_examples_of_its_own() -> None:
    for name, command in COMMANDS.items():
        examples = examples_of(command)
        assert len(set(examples)) == 2, name
        assert all(f"{example} ".startswith(f"headrace {name} ") for example in examples), name


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_what_its_command_takes(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    _, name, *words = shlex.split(example)
    context = COMMANDS[name].make_context(name, words)
    assert context.info_name == name


def test_every_command_says_what_it_prints_as_json_unless_it_prints_no_data() -> None:
    silent = {name for name, command in COMMANDS.items() if "--format json" not in (command.help or "")}
    assert silent == {"run", "demo"}


def test_the_help_lists_every_command_once_under_its_group() -> None:
    group = typer.main.get_group(app)
    text = group.get_help(group.make_context("headrace", [], resilient_parsing=True))
    lists = text[text.index(f"{Group.RUN.value}:") :]
    for heading in Group:
        assert f"{heading.value}:" in lists
    listed = [line.split()[0] for line in lists.splitlines() if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("quarantine", Quarantined),
        ("indexes", ListedGeneration),
        ("schema", Shown),
        ("mirror", TableComparison),
        ("preview", FieldCost),
    ],
)
def test_the_keys_that_are_printed_as_json_are_documented(command: str, printed: type) -> None:
    documented = set(re.findall(r"`(\w+)`", COMMANDS[command].help or ""))
    assert {field.name for field in fields(printed)} <= documented
