"""Define the commands and their own options.

Every option has an environment variable. The work of a command is in the module of its name, which is
imported when the command runs: it loads the database driver, or Spark.
"""

# ruff: noqa: PLC0415 - a command imports what it needs

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.context import CommandContext, Group, app, command
from headrace.logs import LogLevel
from headrace.version import __version__

__all__ = ["UsageError", "app"]

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises for unknown commands and options; it has no public name in every version."""


SlotAction = enum.StrEnum("SlotAction", ["LIST", "DROP"])
MirrorAction = enum.StrEnum("MirrorAction", ["RUN", "CHECK", "VERIFY"])
SchemaAction = enum.StrEnum("SchemaAction", ["SHOW", "JSON", "TYPES"])
QuarantineAction = enum.StrEnum("QuarantineAction", ["LIST", "RETRY", "DROP"])
ConvertibleTool = enum.StrEnum("ConvertibleTool", ["PGSYNC"])


class TypesLanguage(enum.StrEnum):
    """Languages of `headrace schema types`."""

    PYTHON = "python"
    TYPESCRIPT = "typescript"


class GapPolicy(enum.StrEnum):
    """What a run does at a gap in the log."""

    STOP = "stop"
    RESEED = "reseed"


Index = Annotated[str, typer.Argument(help="the index, as the file names it")]
Sink = Annotated[
    str | None, typer.Option("--sink", envvar="HEADRACE_SINK_NAME", help="the sink (default: the primary)")
]
PublicAddress = Annotated[
    str | None, typer.Option(help="HOST:PORT for health, status and metrics (default: none)")
]
PublicHosts = Annotated[
    str, typer.Option(help="other host names that clients use for the public address, separated by commas")
]
Master = Annotated[str | None, typer.Option(help="Spark's master (default: local[*])")]
Conf = Annotated[list[str] | None, typer.Option(help="a setting of Spark, KEY=VALUE; may be repeated")]
Folder = Annotated[Path, typer.Option(help="where the files are written")]
ClusterUrl = Annotated[str, typer.Option("--sink", help="the search cluster's URL, for a new headrace.toml")]
LOCAL_CLUSTER = "http://127.0.0.1:9200"
Offline = Annotated[bool, typer.Option(help="read only the files")]
Waiting = Annotated[
    float | None, typer.Option("--wait", min=0.0, help="wait until it is done, at most N seconds")
]


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="show the version")] = False,
) -> None:
    if version:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from headrace.cli.next_step import show_next_step

        show_next_step(Path(os.environ.get("HEADRACE_CONFIG", "headrace.toml")), os.environ)


@command("Backfill new indexes, then follow.", Group.RUN, "config", "slot", "publication", "log_format")
def run(
    context: CommandContext,
    public_address: PublicAddress = None,
    public_hosts: PublicHosts = "",
    private_address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT for orders from holders of the file's tokens (default: none)"),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    on_gap: Annotated[
        GapPolicy | None, typer.Option(help="at a gap in the log: stop, or reseed (default: the file's)")
    ] = None,
    standby: Annotated[
        bool, typer.Option(help="while another process runs this deployment, wait to take over")
    ] = False,
) -> None:
    """Backfill new indexes, then follow until stopped (Ctrl-C or SIGTERM).

    Examples:
      headrace run
      headrace run --config shop.toml --public-address 127.0.0.1:8080
    """
    from headrace.model.arrow_without_pandas import leave_out_pandas

    # Before the first conversion by pyarrow, which would import pandas for it.
    leave_out_pandas()
    from headrace.cli.run import run_deployment

    run_deployment(
        context,
        master,
        conf or [],
        public_address=public_address,
        public_hosts=public_hosts,
        private_address=private_address,
        on_gap=None if on_gap is None else on_gap.value,
        standby=standby,
    )


@command("Copy tables into a lake, and keep them up to date.", Group.RUN, "config", "log_format")
def mirror(
    context: CommandContext,
    action: Annotated[MirrorAction, typer.Argument(envvar="HEADRACE_MIRROR_ACTION")] = MirrorAction.RUN,
    tables: Annotated[
        list[str] | None, typer.Argument(help="with verify: the tables, as in public.orders")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    once: Annotated[bool, typer.Option(help="write what was committed, then end")] = False,
    reload: Annotated[
        bool, typer.Option(help="read all tables again first; in mode history that ends all versions")
    ] = False,
    repair: Annotated[
        bool, typer.Option(help="with verify: read tables again that differ; stop the mirror first")
    ] = False,
    public_address: PublicAddress = None,
    public_hosts: PublicHosts = "",
) -> bool:
    """Write the tables of `[mirror]` to a lake, then follow until stopped (Ctrl-C or SIGTERM).

    `mirror check` says what that would do, and what keeps it from starting. `mirror verify` compares the
    lake with the database, also while the mirror runs.

    With --format json it prints, check: `tables` (each `table`, `mode`, `size` and more), `publication` and
    `slot` that will be made, `waiting`, `left_out`, `warnings`. verify: a list of `table`, `rows`, `right`,
    `missing`, `surplus`, `different`, `counts`, `changing`, `undecided`, `repaired`, `read_again`,
    `waits_for`, `compared`.

    Examples:
      headrace mirror
      headrace mirror verify public.orders --repair
    """
    of_run, of_verify = once or reload, bool(tables) or repair
    if (of_run and action is not MirrorAction.RUN) or (of_verify and action is not MirrorAction.VERIFY):
        raise typer.BadParameter(
            f"`headrace mirror {action.value}` takes no such argument: --once and --reload belong to "
            "`headrace mirror`, tables and --repair to `headrace mirror verify`"
        )
    if action is MirrorAction.CHECK:
        from headrace.cli.mirror_check import check_mirror

        return check_mirror(context)
    if action is MirrorAction.VERIFY:
        from headrace.cli.mirror_verify import verify_mirror

        return verify_mirror(context, tables or [], repair=repair)
    from headrace.cli.mirror import run_mirror

    run_mirror(context, master, conf or [], public_address, public_hosts, once=once, reload=reload)
    return True


@command("Check files, database and cluster.", Group.LOOK, "config", "slot", "publication")
def check(context: CommandContext, offline: Offline = False) -> int:
    """Check the files, and the database and the cluster against them; nothing is changed.

    It reports everything that keeps a run from starting. For each table it says which columns of old rows the
    log must carry, and which it carries.

    With --format json it prints `ok`, `ready`, `run`, `on_gap`, `findings` (each `level`, `code`, `text`,
    `file`, `line`, `column`, `remedy`, `sql`), `setup` (SQL), `coverage`.

    Examples:
      headrace check
      headrace check --offline --format json
    """
    from headrace.cli.check import check_deployment

    return check_deployment(context, offline=offline)


@command(
    "Prepare the database: show the SQL, ask, run it.", Group.CHANGE, "config", "slot", "publication", "yes"
)
def setup(context: CommandContext) -> bool:
    """Show the SQL that the database needs, with its locks, cost and undo; run it after a question.

    With --format json it prints `sql`, `warnings`, `done` (false: nothing was changed).

    Examples:
      headrace setup
      headrace setup --yes --slot shop
    """
    from headrace.cli.setup import set_up

    return set_up(context)


@command("Undo the setup: show the SQL, ask, run it.", Group.CHANGE, "config", "slot", "publication", "yes")
def teardown(
    context: CommandContext,
    indexes: Annotated[bool, typer.Option(help="delete the search indexes too")] = False,
    moved: Annotated[bool, typer.Option(help="the database has moved to another server since")] = False,
) -> bool:
    """Drop the slot and the publication and restore replica identities, after a question.

    The state in the cluster is deleted too; searches still use the indexes, which get no more changes. It
    fails where a cluster keeps what was to be deleted.

    With --format json it prints `sql`, `warnings`, `aliases` (whose indexes are deleted; of a secondary sink
    `SINK: ALIAS`), `done` (false: nothing was changed).

    Examples:
      headrace teardown
      headrace teardown --indexes --yes
    """
    from headrace.cli.setup import tear_down

    return tear_down(context, indexes=indexes, moved=moved)


@command("Show the state of a running pipeline.", Group.LOOK, "config", "slot")
def status(
    context: CommandContext,
    address: Annotated[
        str | None,
        typer.Argument(envvar="HEADRACE_STATUS_ADDRESS", help="HOST:PORT (default: where the run is)"),
    ] = None,
) -> bool:
    """Show the state, the lag and the indexes of a running pipeline; fail where it is not ready.

    It asks the run's public address, which the run stores in the cluster.

    With --format json it prints what /status answers; see monitoring.md.

    Examples:
      headrace status
      headrace status 127.0.0.1:8080 --format json
    """
    from headrace.cli.status import show_status

    return show_status(context, address)


@command("Show how far the slot is behind the server.", Group.LOOK, "config", "slot")
def lag(context: CommandContext) -> None:
    """Show how far the slot is behind the server, in bytes and seconds; fail where there is no slot.

    With --format json it prints `slot`, `bytes`, `seconds`, `retained_bytes`, `confirmed`, `current`,
    `wal_status`, `safe_bytes`, `reader`.

    Examples:
      headrace lag
      headrace lag --format json
    """
    from headrace.cli.slots import show_lag

    show_lag(context)


@command("List the slots of the database, or drop one.", Group.LOOK, "config", "slot", "yes")
def slots(
    context: CommandContext,
    action: Annotated[SlotAction, typer.Argument(envvar="HEADRACE_SLOTS")] = SlotAction.LIST,
    name: Annotated[str | None, typer.Argument(envvar="HEADRACE_DROP", help="the slot to drop")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--database", help="the database (default: the deployment's; without a file, DATABASE_URL)"
        ),
    ] = None,
) -> bool:
    """List the database's slots: who reads them, how much log they retain. Or drop one by its name.

    The column `ours` marks the slots of the deployment or mirror in this folder. `slots drop NAME` asks
    first, and drops no slot that somebody reads. A deployment file is not needed.

    With --format json it prints, list: a list of `slot`, `ours`, `plugin`, `temporary`, `failover`, `reader`,
    `bytes`, `seconds`, `retained_bytes`, `safe_bytes`, `wal_status`, `lost`, `confirmed`, `current`. drop:
    `slot`, `retained_bytes`, `done`.

    Examples:
      headrace slots
      headrace slots drop old_slot --yes
    """
    from headrace.cli.slots import drop_named, show_slots

    if action is SlotAction.DROP:
        return drop_named(context, name, url)
    show_slots(context, url)
    return True


@command("Show the mapping and the SQL of a schema file, or types.", Group.AUTHOR, "config")
def schema(
    context: CommandContext,
    action: Annotated[SchemaAction, typer.Argument(envvar="HEADRACE_SCHEMA")] = SchemaAction.SHOW,
    index: Annotated[
        list[str] | None, typer.Argument(help="the index to show; with types: the indexes")
    ] = None,
    offline: Offline = False,
    language: Annotated[TypesLanguage | None, typer.Option(help="the language of the types")] = None,
) -> None:
    """Show an index's mapping, SQL and routes. Or print types of documents, or schema files' JSON Schema.

    A route says how a changed row of a table leads to documents.

    With --format json it prints, show: `index`, `table`, `primary_key`, `hash`, `tables`, `mapping`, `keys`,
    `more_keys`, `range`, `routes` (each `table`, `field`, `columns`, `statement`), `old_rows`. json: a JSON
    Schema. types: a module, as text.

    Examples:
      headrace schema show users
      headrace schema types --language python
    """
    from headrace.cli.schema import print_json_schema, print_types, show_schema

    if action is SchemaAction.JSON:
        print_json_schema()
    elif action is SchemaAction.TYPES:
        print_types(context, index or [], None if language is None else language.value, offline=offline)
    else:
        show_schema(context, index or [], offline=offline)


@command("Print documents as they would be now, or what they cost.", Group.AUTHOR, "config")
def preview(
    context: CommandContext,
    index: Index,
    ids: Annotated[list[str] | None, typer.Option("--id", help="a document's id; may be repeated")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="without --id: the first N documents (default: 1)")
    ] = None,
    timing: Annotated[bool, typer.Option(help="print how long each document took")] = False,
    cost: Annotated[bool, typer.Option(help="print what each field costs the index instead")] = False,
) -> bool:
    """Print documents as they would be now, from the database; needs no slot, publication or cluster.

    All documents are of one moment. It fails where no live row has one of the ids.

    With --format json it prints the documents, one a line. With --cost: `index`, `documents`, `fields` (each
    `path`, `type`, `indexed_as`, `bytes`, `share`, `processed`, `nested`, `most_nested`) and totals.

    Examples:
      headrace preview users --id 42
      headrace preview users --cost
    """
    if cost:
        from headrace.cli.cost import print_cost

        return print_cost(context, index, ids or [], limit)
    from headrace.cli.preview import preview as show

    return show(context, index, ids or [], limit, timing=timing)


@command("Say why a document is (not) in its index.", Group.LOOK, "config", "slot")
def explain(
    context: CommandContext, index: Index, document: Annotated[str, typer.Argument(help="the document's id")]
) -> bool:
    """Say why a document is, or is not, in its index: row, filters, position, what is deferred or refused.

    It fails where the index does not show what the database says.

    With --format json it prints `verdict`, `right`, `facts` (each `name`, `value`), `remedy`.

    Examples:
      headrace explain users 42
      headrace explain orders 7:3 --format json
    """
    from headrace.cli.explain import explain_document

    return explain_document(context, index, document)


@command("Compare an index with the database.", Group.LOOK, "config", "slot")
def verify(
    context: CommandContext,
    index: Index,
    repair: Annotated[bool, typer.Option(help="rebuild the documents that differ")] = False,
    sample: Annotated[
        float | None, typer.Option(min=0.0, max=100.0, help="compare only this percentage of the documents")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="selects the sample (default: random)")] = None,
    sink: Sink = None,
) -> bool:
    """Compare an index with the database while the pipeline runs; fail where documents differ.

    With --format json it prints `index`, `alias`, `sink`, `generation`, `applied`, `right`, `documents`, and
    for each kind of difference `count` and `first`.

    Examples:
      headrace verify users --sample 5
      headrace verify users --repair
    """
    from headrace.cli.verify import verify_index
    from headrace.tools.verification.verify import VerifyOptions

    return verify_index(context, index, VerifyOptions(repair, sample, seed, sink))


@command("List the generations of every index.", Group.LOOK, "config", "slot")
def indexes(context: CommandContext) -> None:
    """List the generations of every index, with what readers see and what a rollback can return to.

    A generation is served, building, retained, stopped, failed, gone or orphaned. `headrace status` shows the
    progress of one that is being built.

    With --format json it prints a list of generations: `index`, `generation`, `state`, `documents`, `bytes`,
    `created`, `hash`, `reason`, `ordered`.

    Examples:
      headrace indexes
      headrace indexes --format json
    """
    from headrace.cli.indexes import show_indexes

    show_indexes(context)


@command("Rebuild an index while searches use the present one.", Group.CHANGE, "config", "slot")
def reindex(context: CommandContext, index: Index, wait: Waiting = None) -> None:
    """Ask the running pipeline for a new generation of an index; readers see the old one until it is done.

    Where no pipeline runs, the next start begins with it.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace reindex users
      headrace reindex users --wait 600
    """
    from headrace.cli.ordering import order_generation

    order_generation(context, index, "reindex", wait=wait)


@command("Apply changed files while the pipeline runs.", Group.CHANGE, "config", "slot")
def reload(
    context: CommandContext,
    wait: Annotated[float, typer.Option(min=0.0, help="seconds to wait for the answer")] = 60.0,
) -> None:
    """Ask the running pipeline to read its files again; it applies schemas, indexes and policies.

    Prints what has changed, or every mistake. Where no pipeline runs, the next start reads the files.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace reload
      headrace reload --wait 120
    """
    from headrace.cli.ordering import order_reload

    order_reload(context, wait=wait)


@command("Serve the retained generation of an index.", Group.CHANGE, "config", "slot")
def rollback(context: CommandContext, index: Index, wait: Waiting = None) -> None:
    """Ask the running pipeline to serve the retained generation, until the schema file changes.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace rollback users
      headrace rollback users --wait 60
    """
    from headrace.cli.ordering import order_generation

    order_generation(context, index, "rollback", wait=wait)


@command("Pause the stream of a running pipeline.", Group.CHANGE, "config", "slot")
def pause(context: CommandContext) -> None:
    """Plan no further batch until `headrace resume`, or the next start; the slot retains the log.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace pause
      headrace pause --config shop.toml
    """
    from headrace.cli.ordering import order_run

    order_run(context, "pause", "paused: changes wait in the log until `headrace resume`")


@command("Continue a paused pipeline.", Group.CHANGE, "config", "slot")
def resume(context: CommandContext) -> None:
    """Plan batches again after `headrace pause`.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace resume
      headrace resume --config shop.toml
    """
    from headrace.cli.ordering import order_run

    order_run(context, "resume", "resumed")


@command("Change what a running pipeline logs.", Group.CHANGE, "config", "slot")
def log_level(
    context: CommandContext,
    level: Annotated[LogLevel, typer.Argument(help="log messages from this level on")],
) -> None:
    """Change from which level on a running pipeline logs, until it ends.

    With --format json it prints the order: `id`, `kind`, `index`, `state` (open or done), `result`.

    Examples:
      headrace log-level debug
      headrace log-level info --config shop.toml
    """
    from headrace.cli.ordering import order_run

    done = f"the run logs messages from {level.value} on"
    order_run(context, "log level", done, level=level.value)


@command("List the last orders.", Group.LOOK, "config", "slot")
def orders(context: CommandContext) -> None:
    """List the last orders of the deployment: who asked for what, when, and what came of it.

    The last hundred are kept, whichever way they came: a command, the private address, SIGHUP or Python.

    With --format json it prints a list of `id`, `kind`, `index`, `sink`, `options`, `by`, `client`,
    `asked_at`, `state`, `run`, `ended_at`, `text`, `result`, `error`.

    Examples:
      headrace orders
      headrace orders --format json
    """
    from headrace.cli.orders import show_orders

    show_orders(context)


@command("Wait until a commit is in the documents.", Group.RUN, "config", "slot")
def wait(
    context: CommandContext,
    lsn: Annotated[
        str | None, typer.Option(help="the LSN, like 16/B374D848 (default: the end of the log)")
    ] = None,
    searchable: Annotated[bool, typer.Option(help="refresh the indexes afterwards")] = False,
    timeout: Annotated[float, typer.Option(min=0.0, help="seconds to wait at most")] = 60.0,
    sink: Sink = None,
) -> None:
    """Wait until everything that is committed is in the documents; fail after the timeout.

    With --format json it prints `lsn`, `searchable`, `seconds`.

    Examples:
      headrace wait
      headrace wait --lsn 16/B374D848 --searchable --timeout 10
    """
    from headrace.cli.wait import wait_applied

    wait_applied(context, lsn=lsn, searchable=searchable, timeout=timeout, sink=sink)


@command("List, retry or drop refused documents.", Group.LOOK, "config", "slot", "yes")
def quarantine(
    context: CommandContext,
    action: Annotated[QuarantineAction, typer.Argument(envvar="HEADRACE_QUARANTINE")] = QuarantineAction.LIST,
    index: Annotated[str | None, typer.Argument(help="only of this index")] = None,
    document: Annotated[str | None, typer.Argument(help="only the document with this id")] = None,
    sink: Sink = None,
) -> bool:
    """List the documents in quarantine, rebuild them (retry), or delete their entries (drop).

    These are the documents that the cluster refused; `drop` asks first.

    With --format json it prints, list: a list of `index`, `id`, `reason`, `position`, `at`, `generation`.
    retry: `found`, `left` (such a list). drop: `entries` (such a list), `done`.

    Examples:
      headrace quarantine
      headrace quarantine retry users 42
    """
    from headrace.cli import quarantine as documents

    if action is QuarantineAction.RETRY:
        return documents.rebuild_quarantined(context, index, document, sink)
    if action is QuarantineAction.DROP:
        return documents.drop_quarantined(context, index, document, sink)
    documents.show_quarantine(context, index, document, sink)
    return True


@command("Take over another tool's index name, or an upgraded server.", Group.CHANGE, "config", "slot", "yes")
def adopt(
    context: CommandContext,
    index: Annotated[str | None, typer.Argument(help="the index, as the file names it")] = None,
    alias: Annotated[
        str | None, typer.Option("--name", help="the name that readers use (default: INDEX)")
    ] = None,
    delete_index: Annotated[bool, typer.Option(help="delete an index that has this name")] = False,
    upgraded: Annotated[bool, typer.Option(help="go on with a server that pg_upgrade made")] = False,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="with --upgraded: for the mirror, not for the documents")
    ] = False,
) -> bool:
    """Point a name that readers use to this deployment's index, in one step; print how to undo it.

    With --upgraded: let the deployment, or with --mirror the mirror, go on with a server that pg_upgrade has
    made of the one before.

    With --format json it prints `name`, `index`, `before` (a list of indexes), `done`, `undo` (the body of a
    POST to /_aliases, or null); with --upgraded `system`, `position`, `done`.

    Examples:
      headrace adopt users --name people --delete-index
      headrace adopt --upgraded
    """
    if mirror and not upgraded:
        raise typer.BadParameter("--mirror is for --upgraded")
    from headrace.cli.adopt import adopt_name, adopt_server, adopt_server_of_mirror

    if upgraded:
        return adopt_server_of_mirror(context) if mirror else adopt_server(context)
    return adopt_name(context, index, alias, delete_index=delete_index)


@command("Write the files of a first deployment.", Group.AUTHOR)
def init(
    context: CommandContext,
    url: Annotated[str, typer.Argument(envvar="DATABASE_URL", help="the database, postgresql://…")],
    table: Annotated[str, typer.Option("--table", "-t", help="the root table")],
    folder: Folder = Path(),
    sink: ClusterUrl = LOCAL_CLUSTER,
) -> None:
    """Write headrace.toml and a first schema file, from a table and its foreign keys.

    Also writes a JSON Schema for editors. It adds an index to an existing headrace.toml. It overwrites
    nothing and writes no password.

    With --format json it prints `written` (files), `next` (commands).

    Examples:
      headrace init postgresql://me@db/shop --table users
      headrace init postgresql://me@db/shop -t orders --folder deploy
    """
    from headrace.cli.init import initialise

    initialise(context, url, table, folder, sink)


@command("Design documents on a page in the browser.", Group.AUTHOR)
def design(
    context: CommandContext,
    url: Annotated[
        str | None,
        typer.Argument(
            envvar="DATABASE_URL", help="the database, postgresql://… (default: the deployment's)"
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="where the files are, or are written")] = Path(),
    file: Annotated[str, typer.Option(help="the schema file that is opened first")] = "",
    sink: ClusterUrl = LOCAL_CLUSTER,
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port (default: a free one)")] = 0,
    no_browser: Annotated[bool, typer.Option(help="print the address, open nothing")] = False,
) -> None:
    """Choose tables, columns and aggregates on a page of this machine; it writes the files of a deployment.

    The page also shows the YAML, a real document and warnings. Existing files keep their comments. It
    listens on 127.0.0.1 alone, until Ctrl-C; the address holds a token.

    With --format json it prints `url`, once the page is served.

    Examples:
      headrace design
      headrace design postgresql://me@db/shop --folder deploy --no-browser
    """
    from headrace.cli.design import design as open_page

    open_page(context, url, folder, file, sink, port=port, opens=not no_browser)


@command("Write a deployment from the files of another tool.", Group.AUTHOR)
def convert(
    context: CommandContext,
    origin: Annotated[ConvertibleTool, typer.Argument(help="the tool whose files they are")],
    schema: Annotated[Path, typer.Argument(envvar="HEADRACE_CONVERT", help="its schema.json")],
    url: Annotated[
        str, typer.Argument(envvar="DATABASE_URL", help="the database whose tables and foreign keys are read")
    ],
    folder: Folder = Path(),
    sink: ClusterUrl = LOCAL_CLUSTER,
    force: Annotated[bool, typer.Option(help="overwrite files that are there")] = False,
) -> bool:
    """Write headrace.toml and schema files from PGSync's; list what differs, and what is left to do.

    Writes no password.

    With --format json it prints `written` (files), `notes` (each `file`, `line`, `text`, `remedy`,
    `is_open`), `general`, `next` (for each deployment file its commands).

    Examples:
      headrace convert pgsync schema.json postgresql://me@db/shop --sink http://search:9200
      headrace convert pgsync schema.json postgresql://me@db/shop --folder moved --force
    """
    from headrace.cli.convert import convert as write_files

    assert origin is ConvertibleTool.PGSYNC
    return write_files(context, schema, url, folder, sink, force=force)


@command("Run the demo on this machine.", Group.RUN)
def demo(
    context: CommandContext,
    once: Annotated[bool, typer.Option(help="run it once, compare the result, and exit")] = False,
    users: Annotated[int, typer.Option(min=1, help="the number of users in the shop")] = 500,
    clean: Annotated[bool, typer.Option(help="remove downloaded files, and exit")] = False,
) -> bool:
    """Run a real PostgreSQL, a real OpenSearch and a pipeline between them, all on this machine.

    Examples:
      headrace demo
      headrace demo --once --users 50
    """
    from headrace.cli.demo import clean_up, run_demo

    if clean:
        clean_up()
        return True
    return run_demo(once=once, users=users, log_level=context.log_level)
