"""Define the commands and their options.

Every option has an environment variable. The work of a command is in the module of its name.
"""

from __future__ import annotations

import enum
import logging
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import errors_as_json
from headrace.version import __version__

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises for unknown commands and options; it has no public name in every version."""

app = typer.Typer(
    name="headrace",
    help="PostgreSQL's changes in Spark, and search documents that are always right.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogLevel(enum.StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


class SlotAction(enum.StrEnum):
    """Actions of `headrace slots`."""

    LIST = "list"
    DROP = "drop"


class SchemaAction(enum.StrEnum):
    """Actions of `headrace schema`."""

    SHOW = "show"
    JSON = "json"


class QuarantineAction(enum.StrEnum):
    """Actions of `headrace quarantine`."""

    LIST = "list"
    RETRY = "retry"
    DROP = "drop"


class Format(enum.StrEnum):
    """Formats of output."""

    HUMAN = "human"
    JSON = "json"


class GapPolicy(enum.StrEnum):
    """What a run does at a gap in the log."""

    STOP = "stop"
    RESEED = "reseed"


Config = Annotated[Path, typer.Option("--config", "-c", envvar="HEADRACE_CONFIG", help="the deployment file")]
Slot = Annotated[
    str | None, typer.Option(envvar="HEADRACE_SLOT", help="the replication slot (else the file's)")
]
Publication = Annotated[
    str | None, typer.Option(envvar="HEADRACE_PUBLICATION", help="the publication (else the file's)")
]
Index = Annotated[str, typer.Argument(envvar="HEADRACE_INDEX", help="the index, as the file names it")]
Sink = Annotated[
    str | None, typer.Option("--sink", envvar="HEADRACE_SINK_NAME", help="of which sink (else the primary)")
]


def _set_error_format(chosen: Format) -> Format:
    """Report errors in the same format as the output."""
    errors_as_json.set(chosen is Format.JSON)
    return chosen


Output = Annotated[
    Format,
    typer.Option(
        "--format", envvar="HEADRACE_FORMAT", callback=_set_error_format, help="human or json; errors too"
    ),
]
Errors = Annotated[
    Format,
    typer.Option(
        "--format",
        envvar="HEADRACE_FORMAT",
        callback=_set_error_format,
        help="how an error is printed: human or json",
    ),
]
"""Of commands whose own output has one form."""
Log = Annotated[LogLevel, typer.Option("--log-level", envvar="HEADRACE_LOG_LEVEL", help="how much to tell")]
Yes = Annotated[bool, typer.Option("--yes", "-y", envvar="HEADRACE_YES", help="do not ask")]
_CONFIG = Path("headrace.toml")


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="show the version")] = False,
) -> None:
    if version:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.command(short_help="Backfill new indexes, then follow.")
def run(
    config: Config = _CONFIG,
    slot: Slot = None,
    publication: Publication = None,
    public_address: Annotated[
        str | None,
        typer.Option(
            envvar="HEADRACE_PUBLIC_ADDRESS", help="HOST:PORT for health, status and metrics (default: none)"
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(envvar="HEADRACE_MASTER", help="Spark's master (default: local[*])")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(envvar="HEADRACE_CONF", help="KEY=VALUE, a setting of Spark; may be repeated"),
    ] = None,
    on_gap: Annotated[
        GapPolicy | None,
        typer.Option(
            envvar="HEADRACE_ON_GAP", help="where the log has a gap: stop or reseed (else the file's)"
        ),
    ] = None,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Backfill new indexes, then follow until stopped (Ctrl-C or SIGTERM)."""
    _log(log_level)
    from headrace.cli.run import run_deployment, run_options  # noqa: PLC0415 - loads Spark

    options = run_options(
        master, conf or [], log_level.value, os.environ, on_gap=None if on_gap is None else on_gap.value
    )
    run_deployment(config, os.environ, slot, publication, public_address=public_address, options=options)


@app.command(short_help="Check files, database and cluster.")
def check(
    config: Config = _CONFIG,
    slot: Slot = None,
    publication: Publication = None,
    offline: Annotated[
        bool, typer.Option("--offline", envvar="HEADRACE_OFFLINE", help="read only the files")
    ] = False,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """Check the files, and database and cluster against them; nothing is changed."""
    _log(log_level)
    from headrace.cli.check import check_deployment  # noqa: PLC0415 - loads the database driver

    exit_code = check_deployment(
        config, os.environ, slot, publication, offline=offline, as_json=output is Format.JSON
    )
    raise typer.Exit(exit_code)


@app.command(short_help="Prepare the database; shows the SQL, asks.")
def setup(
    config: Config = _CONFIG,
    slot: Slot = None,
    publication: Publication = None,
    yes: Yes = False,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Print what the database needs as SQL, with locks, costs and undo; ask; apply."""
    _log(log_level)
    from headrace.cli.setup import set_up  # noqa: PLC0415 - loads the database driver

    if not set_up(config, os.environ, slot, publication, yes=yes):
        raise typer.Exit(1)


@app.command(short_help="Take back what was made; shows the SQL, asks.")
def teardown(
    config: Config = _CONFIG,
    slot: Slot = None,
    publication: Publication = None,
    indexes: Annotated[
        bool, typer.Option("--indexes", envvar="HEADRACE_INDEXES", help="delete the search indexes too")
    ] = False,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved",
            envvar="HEADRACE_MOVED",
            help="the state is this deployment's, whose database was moved",
        ),
    ] = False,
    yes: Yes = False,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Print what would be undone, ask, then drop slot and publication and restore replica identities."""
    _log(log_level)
    from headrace.cli.setup import tear_down  # noqa: PLC0415 - loads the database driver

    if not tear_down(config, os.environ, slot, publication, indexes=indexes, moved=moved, yes=yes):
        raise typer.Exit(1)


@app.command(short_help="How far is the slot behind the server?")
def lag(
    config: Config = _CONFIG,
    slot: Slot = None,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """Tell how far the slot is behind the server, in bytes and seconds; fails where there is no slot."""
    _log(log_level)
    from headrace.cli.slots import show_lag  # noqa: PLC0415 - loads the database driver

    show_lag(config, os.environ, slot, as_json=output is Format.JSON)


@app.command(short_help="List the slots of the database, or drop one.")
def slots(
    action: Annotated[SlotAction, typer.Argument(envvar="HEADRACE_SLOTS")] = SlotAction.LIST,
    name: Annotated[str | None, typer.Argument(envvar="HEADRACE_DROP", help="the slot to drop")] = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    yes: Yes = False,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """List the database's slots: who reads them, how much log they keep. Or drop the one that is named."""
    _log(log_level)
    from headrace.cli.slots import drop_named, show_slots  # noqa: PLC0415 - loads the database driver

    if action is SlotAction.LIST:
        show_slots(config, os.environ, slot, as_json=output is Format.JSON)
    elif not drop_named(config, os.environ, name, slot, yes=yes):
        raise typer.Exit(1)


@app.command(short_help="Show what becomes of a schema file.")
def schema(
    action: Annotated[SchemaAction, typer.Argument(envvar="HEADRACE_SCHEMA")] = SchemaAction.SHOW,
    index: Annotated[str | None, typer.Argument(envvar="HEADRACE_INDEX", help="the index to show")] = None,
    config: Config = _CONFIG,
    offline: Annotated[
        bool, typer.Option("--offline", envvar="HEADRACE_OFFLINE", help="read only the files")
    ] = False,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """Show an index's mapping, SQL and routes. Or print the JSON Schema of schema files, for editors."""
    _log(log_level)
    from headrace.cli.schema import print_json_schema, show_schema  # noqa: PLC0415 - loads the database driver

    if action is SchemaAction.JSON:
        print_json_schema()
    else:
        show_schema(config, os.environ, index, offline=offline, as_json=output is Format.JSON)


@app.command(short_help="Show documents as they would be now.")
def preview(
    index: Annotated[str, typer.Argument(envvar="HEADRACE_INDEX", help="the index")],
    ids: Annotated[
        list[str] | None, typer.Option("--id", envvar="HEADRACE_ID", help="a document's id; may be repeated")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, envvar="HEADRACE_LIMIT", help="without ids: the first so many (1)")
    ] = None,
    timing: Annotated[
        bool, typer.Option("--timing", envvar="HEADRACE_TIMING", help="tell how long each took")
    ] = False,
    config: Config = _CONFIG,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Print documents from the database as they would be now; needs no slot, publication or cluster."""
    _log(log_level)
    from headrace.cli.preview import preview as show  # noqa: PLC0415 - loads the database driver

    if not show(config, os.environ, index, ids or [], limit, timing=timing):
        raise typer.Exit(1)


@app.command(short_help="Compare an index with the database.")
def verify(
    index: Index,
    repair: Annotated[
        bool, typer.Option("--repair", envvar="HEADRACE_REPAIR", help="build anew what is wrong")
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=100.0, envvar="HEADRACE_SAMPLE", help="compare only so many percent of the documents"
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(envvar="HEADRACE_SEED", help="which of them (default: others each time)")
    ] = None,
    sink: Sink = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """Compare an index with the database, beside the running stream; fails where it is not right."""
    _log(log_level)
    from headrace.cli.verify import verify_index  # noqa: PLC0415 - loads much
    from headrace.pipeline.verification.verify import VerifyOptions  # noqa: PLC0415

    options = VerifyOptions(repair, sample, seed, sink)
    as_json = output is Format.JSON
    if not verify_index(config, os.environ, slot, index, options=options, as_json=as_json):
        raise typer.Exit(1)


Waiting = Annotated[
    float | None,
    typer.Option("--wait", min=0.0, envvar="HEADRACE_WAIT", help="wait until it is done, so many seconds"),
]


@app.command(short_help="List the generations of every index.")
def indexes(
    config: Config = _CONFIG, slot: Slot = None, output: Output = Format.HUMAN, log_level: Log = LogLevel.INFO
) -> None:
    """List every generation: which one readers see, which one is built, which one can be gone back to."""
    _log(log_level)
    from headrace.cli.indexes import show_indexes  # noqa: PLC0415 - loads the database driver

    show_indexes(config, os.environ, slot, as_json=output is Format.JSON)


@app.command(short_help="Build an index anew beside the one that is read.")
def reindex(
    index: Index,
    wait: Waiting = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Ask the running pipeline for a new generation of an index; readers see the old one until it is done."""
    _log(log_level)
    from headrace.cli.indexes import request_change  # noqa: PLC0415 - loads the database driver

    request_change(config, os.environ, slot, index, "reindex", wait=wait)


@app.command(short_help="Let readers see the generation before.")
def rollback(
    index: Index,
    wait: Waiting = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Ask the running pipeline to go back to the kept generation; it stays until the schema file changes."""
    _log(log_level)
    from headrace.cli.indexes import request_change  # noqa: PLC0415 - loads the database driver

    request_change(config, os.environ, slot, index, "rollback", wait=wait)


@app.command(short_help="Wait until a commit is in the documents.")
def wait(
    lsn: Annotated[
        str | None,
        typer.Option(envvar="HEADRACE_LSN", help="the place in the log, like 16/B374D848 (default: its end)"),
    ] = None,
    searchable: Annotated[
        bool,
        typer.Option("--searchable", envvar="HEADRACE_SEARCHABLE", help="refresh the indexes afterwards"),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, envvar="HEADRACE_TIMEOUT", help="how long at most (seconds)")
    ] = 60.0,
    sink: Sink = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Return once everything that is committed is in the documents; fails where it is not in time."""
    _log(log_level)
    from headrace.cli.wait import wait_applied  # noqa: PLC0415 - loads the database driver

    wait_applied(config, os.environ, slot, lsn=lsn, searchable=searchable, timeout=timeout, sink=sink)


@app.command(short_help="Documents that the cluster refuses.")
def quarantine(
    action: Annotated[QuarantineAction, typer.Argument(envvar="HEADRACE_QUARANTINE")] = QuarantineAction.LIST,
    index: Annotated[str | None, typer.Argument(envvar="HEADRACE_INDEX", help="only of this index")] = None,
    document: Annotated[
        str | None, typer.Argument(envvar="HEADRACE_DOCUMENT", help="only the document with this id")
    ] = None,
    config: Config = _CONFIG,
    slot: Slot = None,
    yes: Yes = False,
    output: Output = Format.HUMAN,
    log_level: Log = LogLevel.INFO,
) -> None:
    """List documents in quarantine, build them anew (retry), or forget that they were refused (drop)."""
    _log(log_level)
    from headrace.cli import quarantine as documents  # noqa: PLC0415 - loads the database driver

    done = True
    if action is QuarantineAction.LIST:
        as_json = output is Format.JSON
        documents.show_quarantine(config, os.environ, slot, index, document, as_json=as_json)
    elif action is QuarantineAction.RETRY:
        done = documents.retry_quarantined(config, os.environ, slot, index, document)
    else:
        done = documents.drop_quarantined(config, os.environ, slot, index, document, yes=yes)
    if not done:
        raise typer.Exit(1)


@app.command(short_help="Take a name over from another tool's index.")
def adopt(
    index: Index,
    alias: Annotated[
        str | None,
        typer.Option("--name", envvar="HEADRACE_NAME", help="the name that readers know (default: INDEX)"),
    ] = None,
    delete_index: Annotated[
        bool,
        typer.Option(
            "--delete-index", envvar="HEADRACE_DELETE_INDEX", help="where the name is an index, delete it"
        ),
    ] = False,
    config: Config = _CONFIG,
    slot: Slot = None,
    yes: Yes = False,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Let a name that readers know lead to this deployment's index, in one step; prints the way back."""
    _log(log_level)
    from headrace.cli.adopt import adopt_name  # noqa: PLC0415 - loads the database driver

    if not adopt_name(config, os.environ, slot, index, alias, delete_index=delete_index, yes=yes):
        raise typer.Exit(1)


@app.command(short_help="Write a first deployment from a table.")
def init(
    url: Annotated[str, typer.Argument(envvar="DATABASE_URL", help="the database, postgresql://…")],
    table: Annotated[str, typer.Option("--table", "-t", envvar="HEADRACE_TABLE", help="the root table")],
    folder: Annotated[
        Path, typer.Option("--folder", envvar="HEADRACE_FOLDER", help="where the files are written")
    ] = Path(),
    sink: Annotated[
        str, typer.Option("--sink", envvar="HEADRACE_SINK", help="the search cluster's URL")
    ] = "http://127.0.0.1:9200",
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Write headrace.toml and a first schema file from a table's foreign keys."""
    _log(log_level)
    from headrace.cli.init import initialise  # noqa: PLC0415 - loads the database driver

    initialise(url, table, folder, sink)


@app.command(short_help="Show it all on this machine.")
def demo(
    once: Annotated[
        bool, typer.Option("--once", envvar="HEADRACE_ONCE", help="tell the story once, check it, and end")
    ] = False,
    users: Annotated[
        int, typer.Option(min=1, envvar="HEADRACE_USERS", help="how many users the shop has")
    ] = 500,
    clean: Annotated[
        bool, typer.Option("--clean", envvar="HEADRACE_CLEAN", help="remove what was downloaded, and end")
    ] = False,
    output: Errors = Format.HUMAN,  # noqa: ARG001 - its callback does it
    log_level: Log = LogLevel.INFO,
) -> None:
    """Show rows of a real PostgreSQL become documents in a real OpenSearch, all on this machine."""
    _log(log_level)
    from headrace.cli.demo import clean_up, run_demo  # noqa: PLC0415 - loads Spark

    if clean:
        clean_up()
    elif not run_demo(once=once, users=users, log_level=log_level.value):
        raise typer.Exit(1)


def _log(level: LogLevel) -> None:
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("headrace").setLevel(level.value.upper())
    for noisy in ("py4j", "urllib3", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING if level is LogLevel.DEBUG else logging.ERROR)
