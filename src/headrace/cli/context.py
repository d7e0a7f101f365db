"""The options that many commands share, and what a command gets from them.

`command` registers a function with typer. The shared options are added to its own ones, and the function
gets their values as one `CommandContext`.
"""

from __future__ import annotations

import copy
import enum
import inspect
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from headrace.errors import HeadraceError, Kind
from headrace.logs import LogFormat, LogLevel, configure_logging
from headrace.reporter import SilentReporter

if TYPE_CHECKING:
    from headrace.mirror.mirrored_lake import MirroredLake
    from headrace.pipeline.project import Project
    from headrace.pipeline.worker.plan import Endpoints
    from headrace.state import StateKey


class Group(enum.StrEnum):
    """What commands are for: the headings of `headrace --help`."""

    RUN = "Run"
    LOOK = "Look: nothing is changed, unless you say so"
    CHANGE = "Change the database, or a running pipeline"
    AUTHOR = "Author: describe documents"


class GroupedCommands(typer.core.TyperGroup):
    """Lists commands under the headings of their groups."""

    # Without rich's markup typer has no panels, and lists all commands under one heading.
    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as its base has it
        """Write one list for each group."""
        for group in Group:
            with formatter.section(group.value):
                formatter.write_dl(
                    [
                        (name, found.short_help or "")
                        for name, found in self.commands.items()
                        if getattr(found, "rich_help_panel", None) == group
                    ]
                )


app = typer.Typer(
    name="headrace",
    help="PostgreSQL's changes in Spark, and search documents that are always right.\n\n"
    "`headrace` alone says which command comes next in this folder.",
    cls=GroupedCommands,
    rich_markup_mode=None,
    # typer would print the local variables of each frame, and passwords are among them.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(enum.StrEnum):
    """Formats of output."""

    HUMAN = "human"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The values of the shared options; an option that a command does not have has its default.

    Attributes:
        config: the path of the deployment file.
        slot: the replication slot; None is the file's.
        publication: the publication; None is the file's.
        yes: whether questions are answered with yes.
        as_json: whether output and errors are JSON.
        log_level: the least severe messages that are logged.
        log_format: the format of log messages.
        environ: the environment variables.
    """

    config: Path = Path("headrace.toml")
    slot: str | None = None
    publication: str | None = None
    yes: bool = False
    as_json: bool = False
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT
    # Read when a command runs and not when this is imported: programs set variables before they call.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def open_project(self, index: str | None = None) -> Project:
        """Load the deployment file and its schemas; where `index` is named, mistakes of others do not count.

        Raises:
            HeadraceError: CONFIG or SCHEMA; USAGE for a slot or publication that is not a valid name.
        """
        from headrace.pipeline.project import open_project  # noqa: PLC0415 - loads the database driver

        return open_project(
            self.config, self.environ, slot=self.slot, publication=self.publication, index=index
        )

    def load_project(self) -> tuple[Project | None, tuple[HeadraceError, ...]]:
        """Load the files that are valid; return their project, or None, and the mistakes of the others.

        Raises:
            HeadraceError: CONFIG; USAGE for a slot or publication that is not a valid name.
        """
        from headrace.pipeline.project import open_loadable  # noqa: PLC0415 - loads the database driver

        return open_loadable(self.config, self.environ, slot=self.slot, publication=self.publication)

    def open_endpoints(self, sink: str | None = None) -> tuple[Endpoints, StateKey]:
        """Return the deployment's endpoints and the name of its state, without reading its schemas.

        Raises:
            HeadraceError: CONFIG; USAGE for a slot or sink that is not a valid name.
        """
        from headrace.pipeline.project import open_endpoints  # noqa: PLC0415 - loads the database driver

        return open_endpoints(self.config, self.environ, self.slot, sink)

    def open_mirror(self) -> MirroredLake:
        """Return the lake of the deployment file's mirror, to be looked at; nothing is opened yet.

        Raises:
            HeadraceError: CONFIG.
        """
        from headrace.config.load import load_deployment  # noqa: PLC0415 - mirrors are an extra
        from headrace.mirror.run import open_mirror  # noqa: PLC0415 - loads Spark

        deployment = load_deployment(self.config, self.environ)
        return open_mirror(deployment, SilentReporter(), threading.Event()).mirrored

    def agrees(self, question: str) -> bool:
        """Ask the operator before something is altered; who asked for JSON agrees by `--yes` alone.

        Raises:
            HeadraceError: USAGE where the question cannot be answered.
        """
        from headrace.cli import terminal  # noqa: PLC0415 - loads rich

        if self.as_json and not self.yes:
            terminal.say("nothing was changed: `--format json` asks no questions, so add --yes")
            return False
        return self.yes or terminal.agreed(question)


_SHARED: Mapping[str, tuple[Any, Any]] = {
    "config": (
        Annotated[Path, typer.Option("--config", "-c", help="the deployment file")],
        Path("headrace.toml"),
    ),
    "slot": (Annotated[str | None, typer.Option(help="the replication slot (else the file's)")], None),
    "publication": (Annotated[str | None, typer.Option(help="the publication (else the file's)")], None),
    "yes": (Annotated[bool, typer.Option("--yes", "-y", help="ask no questions")], False),
    "format": (
        Annotated[Format, typer.Option(help="print data and errors for people, or as JSON")],
        Format.HUMAN,
    ),
    "log_level": (Annotated[LogLevel, typer.Option(help="log messages from this level on")], LogLevel.INFO),
    "log_format": (Annotated[LogFormat, typer.Option(help="log messages as text or json")], LogFormat.TEXT),
}
"""The shared options: type and default value."""

_EXAMPLES = "Examples:"
Command = Callable[..., bool | int | None]


def command(short_help: str, group: Group, *shared: str) -> Callable[[Command], Command]:
    """Register a command that is named like its function, with hyphens, and some of the shared options.

    The function gets a `CommandContext`, then its own options. It returns whether it succeeded, or an exit
    code; None is a success. Its docstring is the help, with command lines after `Examples:`.

    Args:
        short_help: what the list of commands says.
        group: the heading in the list of commands.
        shared: names of shared options; every command has `--format` and `--log-level`.
    """
    names = (*shared, "format", "log_level")

    def register(function: Command) -> Command:
        name = function.__name__.replace("_", "-")
        _context, *own = inspect.signature(function, eval_str=True).parameters.values()
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in ((name, _SHARED[name]) for name in names)
        ]

        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            given["as_json"] = given.pop("format") is Format.JSON
            context = CommandContext(**given)
            # Before the command imports anything that logs.
            configure_logging(context.log_level, context.log_format)
            outcome = function(context, **values)
            # A bool is an answer (True: 0). Every bool is an int too, so it is asked for first.
            raise typer.Exit(int(not outcome) if isinstance(outcome, bool) else outcome or 0)

        run.__doc__, _, examples = inspect.cleandoc(function.__doc__ or "").partition(f"\n\n{_EXAMPLES}\n")
        parameters = [
            _named(option.replace(kind=inspect.Parameter.KEYWORD_ONLY)) for option in (*own, *options)
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        # typer joins the lines of a paragraph that does not begin with \\b.
        epilog = f"\b\n{_EXAMPLES}\n{examples}"
        app.command(name, short_help=short_help, rich_help_panel=group, epilog=epilog)(run)
        return function

    return register


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter with its environment variable, and as a flag without a `--no-…` if it is a bool.

    The variable is HEADRACE_ and the long name of the option, or the name of the argument, unless it has one.
    """
    kind, about = get_args(parameter.annotation)
    # Commands share these annotations: what one gets must not show in another.
    about = copy.copy(about)
    name = parameter.name.replace("_", "-")
    # typer takes the first name that an annotation declares for a default, until it reads the annotation.
    words = [word for word in (about.default, *(about.param_decls or ())) if isinstance(word, str)]
    declared = [word for word in words if word.startswith("--")]
    if kind is bool and not declared:
        about.param_decls = [f"--{name}"]
    long = declared[0].removeprefix("--") if declared else name
    about.envvar = about.envvar or f"HEADRACE_{long.replace('-', '_').upper()}"
    return parameter.replace(annotation=Annotated[kind, about])


def examples_of(command: Any) -> list[str]:
    """Return the command lines that a command's help shows."""
    return [line.strip() for line in command.epilog.splitlines()[2:]]


def host_names(text: str) -> tuple[str, ...]:
    """Return the names of `--public-hosts`.

    Raises:
        HeadraceError: USAGE.
    """
    names = tuple(filter(None, re.split(r"[,\s]+", text)))
    for name in names:
        if "/" in name or "@" in name:
            remedy = "Write HOST, or HOST:PORT, separated by commas."
            raise HeadraceError(Kind.USAGE, f"--public-hosts: {name!r} is not a host", remedy)
    return names
