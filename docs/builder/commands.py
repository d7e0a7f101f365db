"""Generate the page of the command line from the commands themselves."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from builder.markdown import cell, table
from headrace.cli.app import app
from headrace.cli.context import Group, examples_of

HEAD = """\
# Commands

**For everyone at a terminal**: each command with its options, two examples and a guide.

`headrace` alone says which command comes next in this folder. Each command has `--help`.
Every option has an environment variable; an option on the command line wins.
`headrace --version` prints the version, `headrace --install-completion` teaches your shell to complete
commands and options.

**`--format json`.** Data goes to standard output, in the form that each command describes below. `headrace`
alone prints `found` and `next` where `HEADRACE_FORMAT` is `json`. An error is one line on standard error, the
same for every command: `{"error": {…}}` with `code`, `cause`, `remedy`, `waits` (whether it can pass by
itself), `exit_code` and `more` (further errors of this form). Nothing is asked: without `--yes`, a command
prints what it would do and does not do it (`done` is false), and its exit code is 1.

**Exit codes.** 0 done; 1 failed, or answered with no; 2 wrong usage or configuration (also from `check`); 130
ended by Ctrl-C before it was done, or by a second signal.
"""

GUIDES = {
    "init": "guides/design.md#what-it-suggests",
    "design": "guides/design.md",
    "convert": "guides/moving.md",
    "check": "guides/checks.md",
    "preview": "guides/checks.md#what-an-index-pays-for-a-field",
    "setup": "guides/postgres.md",
    "run": "guides/operations.md",
    "mirror": "guides/mirror.md",
    "status": "guides/monitoring.md",
    "lag": "guides/slots.md",
    "slots": "guides/slots.md",
    "schema": "reference/schema.md",
    "explain": "guides/console.md#why-is-a-document-not-in-the-index",
    "verify": "guides/consistency.md#is-an-index-right",
    "wait": "guides/consistency.md#when-is-a-commit-in-the-documents",
    "indexes": "guides/generations.md",
    "reindex": "guides/generations.md",
    "rollback": "guides/generations.md",
    "reload": "guides/generations.md#changed-files",
    "pause": "guides/operations.md#pause-and-resume",
    "resume": "guides/operations.md#pause-and-resume",
    "log-level": "guides/operations.md",
    "orders": "guides/control.md",
    "quarantine": "guides/delivery.md#documents-that-the-cluster-refuses",
    "adopt": "guides/moving.md",
    "teardown": "guides/slots.md",
    "demo": "start.md",
}
"""The guide of each command, in `docs/`."""


_SHARED = ("--config", "--slot", "--publication", "--yes", "--log-format")
_EVERYWHERE = ("--format", "--log-level")


def page() -> str:
    """Return the page's text."""
    commands = typer.main.get_group(app).commands
    groups = [
        part
        for group in Group
        for part in (
            f"## {group.value}\n",
            table(
                ("`headrace …`", "does"),
                (
                    (f"[`{name}`](#headrace-{name})", (command.short_help or "").rstrip("."))
                    for name, command in commands.items()
                    if getattr(command, "rich_help_panel", None) == group
                ),
            ),
        )
    ]
    shared = {
        _long(each): each for command in commands.values() for each in command.params if _is_shared(each)
    }
    rows = (_option_row(shared[name]) for name in (*_EVERYWHERE, *_SHARED))
    return "\n".join(
        [
            HEAD,
            *groups,
            f"## Options of many commands\n\nEvery command has {_list(_EVERYWHERE)}.\n",
            table(_OPTION_HEAD, rows),
            *(_section(name, command) for name, command in commands.items()),
        ]
    )


_OPTION_HEAD = ("option", "meaning", "variable")


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.envvar]
    words = [_argument(each) for each in arguments] + [_option(each) for each in options if each.required]
    own = [each for each in options if not _is_shared(each)]
    shared = [_long(each) for each in options if _is_shared(each) and _long(each) not in _EVERYWHERE]
    guide = GUIDES[name]
    parts = [
        f"## headrace {name}\n\n{inspect.cleandoc(command.help or '')}\n",
        f"```\n{' '.join(['headrace', name, *words])}{' [OPTIONS]' if own else ''}\n```\n",
        "\n".join(["For example:\n", "```sh", *examples_of(command), "```\n"]),
    ]
    if arguments:
        rows = [(f"`{each.name.upper()}`", _meaning(each), f"`{each.envvar}`") for each in arguments]
        parts.append(table(("argument", "meaning", "variable"), rows))
    if own:
        parts.append(table(_OPTION_HEAD, map(_option_row, own)))
    also = f"Also {_list(shared)}: [options of many commands](#options-of-many-commands). " if shared else ""
    parts.append(f"{also}More: [{guide.partition('#')[0]}](../{guide}).\n")
    return "\n".join(parts)


def _is_shared(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and _long(parameter) in {*_SHARED, *_EVERYWHERE}


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _option_row(parameter: Any) -> tuple[str, str, str]:
    short = [name for name in parameter.opts if not name.startswith("--")]
    names = ", ".join([f"`{_option(parameter)}`", *(f"`{name}`" for name in short)])
    return names, _meaning(parameter), f"`{parameter.envvar}`"


def _argument(parameter: Any) -> str:
    name = parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    return f"{_long(parameter)} {_value(parameter)}".strip()


def _long(parameter: Any) -> str:
    return next(str(name) for name in parameter.opts if name.startswith("--"))


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"{{{','.join(choice.value for choice in kind)}}}"
    return {Path: "PATH", int: "N", float: "N"}.get(kind, "TEXT")


def _meaning(parameter: Any) -> str:
    text = str(parameter.help or _choices(parameter))
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = default.value
    is_told = default in {None, False, ""} or "default" in text or parameter.required
    return cell(text if is_told else f"{text} (default: `{default}`)")


def _choices(parameter: Any) -> str:
    return " or ".join(f"`{choice.value}`" for choice in parameter.type_descriptor.annotation)
