"""`headrace demo`: show the whole pipeline on this machine, with real servers of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from rich.markup import escape

from headrace.assembly import Assembler
from headrace.catalog import read_catalog
from headrace.cli import terminal
from headrace.cli.signals import stopping_by_signals
from headrace.config.cache import cache_folder
from headrace.config.java import find_java
from headrace.embedded.jars import DOWNLOAD_MB, opensearch_jars, opensearch_present
from headrace.embedded.opensearch import JAVA_MINIMUM, EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError
from headrace.logs import LogLevel
from headrace.model.units import quantity
from headrace.pipeline.explain import Explainer
from headrace.pipeline.order_desk import Errands, OrderDesk
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.run import PipelineRun, RunContext
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import document
from headrace.snapshot import plan_ranges
from headrace.state import Mailbox, StateStore
from headrace.status.board import StatusBoard
from headrace.status.server import StatusServer
from headrace.tools.demo import oracle
from headrace.tools.demo.script import SCENES, Scene
from headrace.tools.demo.shop import create_shop, write_deployment
from headrace.tools.demo.workload import keep_busy

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.4
_LOOK_SECONDS = 0.002
_WHOLE = 1 << 30
_WIDTH = 114  # of a line that goes to no terminal
_INDENT = 4
_SOME = 20
_Found = TypeVar("_Found")


@dataclass
class StoryResult:
    """The result of the story; `wrong` is None until the story has ended."""

    latencies: list[float] = field(default_factory=list)
    wrong: list[str] | None = None
    error: HeadraceError | None = None


def clean_up() -> None:
    """Remove what the demo has downloaded."""
    folder = cache_folder(os.environ)
    if folder.is_dir():
        shutil.rmtree(folder)
        terminal.done(f"removed {folder}")
    else:
        terminal.done("nothing to remove")


def run_demo(*, once: bool, users: int, log_level: LogLevel) -> bool:
    """Run the demo; with `once`, return whether every index was right at the end.

    Raises:
        HeadraceError: the error that stopped the demo.
    """
    stopping = stopping_by_signals()
    result = StoryResult()
    try:
        with _servers(stopping) as (postgres, opensearch), scratch_folder() as folder:
            with stopping.interrupting():
                url = postgres.create_database("shop")
                took = create_shop(url, users=users)
                terminal.done(f"a shop with {users:,} users in {took:.1f} s")
                config = write_deployment(folder, url, opensearch.url)
                terminal.say('replica_identity is "auto" here: Headrace sets what its documents need')
                project = open_project(config, os.environ)
            _follow(project, url, stopping, result, once=once, log_level=log_level)
    except Stopped:
        pass
    terminal.done("stopped; nothing is left running")
    if result.error is not None:
        raise result.error
    return not once or result.wrong == []


@contextlib.contextmanager
def _servers(stopping: Stopping) -> Iterator[tuple[EmbeddedPostgres, EmbeddedOpenSearch]]:
    with contextlib.ExitStack() as stack:
        with stopping.interrupting():
            # A server that is interrupted while it starts would leave processes behind.
            with stopping.patient(), terminal.working("starting PostgreSQL …"):
                postgres = stack.enter_context(EmbeddedPostgres())
            terminal.done(f"PostgreSQL on 127.0.0.1:{postgres.port}")
            if not opensearch_present(os.environ):
                folder = cache_folder(os.environ)
                terminal.say(
                    f"downloading OpenSearch once: {DOWNLOAD_MB} MB to {folder} (headrace demo --clean)"
                )
                with terminal.progress("OpenSearch", None) as report:
                    opensearch_jars(find_java(JAVA_MINIMUM), os.environ, report)
            with terminal.working("starting OpenSearch …"):
                opensearch = stack.enter_context(EmbeddedOpenSearch(short_lived=True))
            terminal.done(f"OpenSearch at {opensearch.url}")
        yield postgres, opensearch


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder that is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _follow(
    project: Project, url: str, stopping: Stopping, result: StoryResult, *, once: bool, log_level: LogLevel
) -> None:
    """Run the deployment; a thread runs the story as soon as the stream is live.

    Where the run ends by itself, the servers and the console stay up until somebody stops the demo.
    """
    endpoints = project.resolve()
    board = StatusBoard(project.specs, reporter=terminal.TerminalReporter())
    with StatusServer(board, "127.0.0.1:0", explains=Explainer(project, endpoints)) as status:
        places = {
            "console": f"http://{status.address}/",
            "documents": f"{endpoints.sink.urls[0]}/users/_search?pretty",
            "state": f"http://{status.address}/status",
            "metrics": f"http://{status.address}/metrics",
            "database": f"psql {url}",
        }
        story = threading.Thread(
            target=_run_story, args=(project, endpoints, places, stopping, result), kwargs={"once": once}
        )
        try:
            with contextlib.closing(Client(endpoints.sink)) as client:
                errands = Errands(lambda: project, endpoints)
                desk = OrderDesk(Mailbox(client, project.key), board, errands.do)
                around = RunContext(board, stopping, desk, on_live=story.start)
                PipelineRun(project, endpoints, RunOptions(log_level=log_level), around).execute()
        except HeadraceError as error:
            if not once and not stopping.is_set():
                terminal.wrong(str(error))
                terminal.say("the run has ended; its servers keep running until Ctrl-C")
                stopping.wait()
            raise
        finally:
            stopping.set()
            if story.ident is not None:
                story.join()


def _run_story(
    project: Project,
    endpoints: Endpoints,
    places: Mapping[str, str],
    stopping: Stopping,
    result: StoryResult,
    *,
    once: bool,
) -> None:
    client = Client(endpoints.sink)
    try:
        for what, where in places.items():
            terminal.out.print(f"  {what:11}{where}", markup=False)
        terminal.out.print()
        with connect(endpoints.database, application_name="headrace demo") as connection:
            for scene in SCENES:
                took = _play(scene, connection, client, stopping)
                if scene.sql:  # a scene without SQL shows the result of an earlier one
                    result.latencies.append(took)
                if stopping.wait(PAUSE_SECONDS):
                    return
        result.wrong = _verify(project, endpoints)
        _print_summary(result)
        if not once:
            terminal.out.print("\nThe shop stays busy with random transactions; stop with Ctrl-C.\n")
            keep_busy(endpoints.database, StateStore(client, project.key), stopping, _show)
    except HeadraceError as error:
        result.error = error
    finally:
        client.close()
        if once or result.error is not None:
            stopping.set()


def _play(scene: Scene, connection: Connection, client: Client, stopping: threading.Event) -> float:
    """Commit the scene's transaction and wait for its document; return the seconds between."""
    if scene.sql:
        with connection.transaction():
            for statement in scene.sql:
                execute(connection, statement)
    found, took = await_arrival(
        lambda: document(client, scene.index, scene.id), scene.arrived, stopping, _LOOK_SECONDS
    )
    has_arrived = scene.arrived(found)
    if not has_arrived and stopping.is_set():
        return took  # it was stopped while it looked
    print_scene(scene.title, scene.sql, has_arrived=has_arrived)
    after = f"after {1000 * took:,.0f} ms" if scene.sql else "by then"
    shown = json.dumps(scene.shown(found), ensure_ascii=False) if found is not None else "no document"
    rest = short(f"  {shown}", len(f"{scene.index}/{scene.id} {after}"))
    terminal.out.print(f"    {scene.index}/{scene.id} [cyan]{after}[/cyan]{escape(rest)}")
    return took


def await_arrival(
    read: Callable[[], _Found], arrived: Callable[[_Found], bool], stopping: threading.Event, pause: float
) -> tuple[_Found, float]:
    """Read until what was read shows the change; return it, and the seconds that it took.

    Where the demo is stopped, or a minute has passed, it returns what is there.
    """
    begin = time.monotonic()
    found = read()
    while not arrived(found) and time.monotonic() - begin < PATIENCE_SECONDS and not stopping.wait(pause):
        found = read()
    return found, time.monotonic() - begin


def print_scene(title: str, statements: Sequence[str], *, has_arrived: bool) -> None:
    """Print a scene and its transaction."""
    mark = "[green]✓[/green]" if has_arrived else "[red]✗[/red]"
    terminal.out.print(f"{mark} [bold]{escape(title)}[/bold]")
    for statement in statements:
        terminal.out.print(f"    [dim]{escape(short(statement))}[/dim]")


def short(text: str, before: int = 0) -> str:
    """Cut `text` to one line, indented and with `before` characters before it."""
    room = max((terminal.out.width if terminal.out.is_terminal else _WIDTH) - _INDENT - before, _SOME)
    return text if len(text) <= room else text[: room - 1] + "…"


def _verify(project: Project, endpoints: Endpoints) -> list[str]:
    """Compare every index with a naive evaluation over plain SELECT * and with a fresh rebuild."""
    wrong: list[str] = []
    for name, expected in oracle.expected_documents(endpoints.database).items():
        actual = oracle.actual_documents(endpoints.sink.urls[0], project.primary.prefix + name)
        against_rows = oracle.differences(expected, actual)
        against_rebuild = oracle.differences(_rebuild(project, endpoints, name), actual)
        wrong += [f"{name}: {text}" for text in (*against_rows, *against_rebuild)]
        mark = "[red]✗[/red]" if against_rows or against_rebuild else "[green]✓[/green]"
        documents = quantity(len(actual), "document")
        terminal.out.print(
            f"{mark} {name}: {documents} == a naive evaluation over SELECT * == a fresh rebuild"
        )
    for text in wrong:
        terminal.out.print(f"    [red]{escape(text)}[/red]")
    return wrong


def _rebuild(project: Project, endpoints: Endpoints, name: str) -> oracle.Documents:
    """Assemble all documents of an index from the database."""
    spec = project.specs[name]
    with ReadSession(endpoints.database) as session:
        catalog = read_catalog(session, spec.tables())
        assembler = Assembler(session, spec, catalog)
        return {
            # A float would round away what the comparison is to find.
            operation.id: json.loads(operation.body or b"", parse_float=Decimal)
            for part in plan_ranges(session, catalog[spec.table], _WHOLE)
            for operation in assembler.assemble_range(part, 0)
        }


def _print_summary(result: StoryResult) -> None:
    ordered = sorted(result.latencies)
    middle = ordered[len(ordered) // 2]
    verdict = "every index is right" if not result.wrong else "an index is WRONG"
    terminal.out.print(
        f"\n{verdict}; commit to document: median {1000 * middle:.0f} ms, slowest {1000 * ordered[-1]:.0f} ms"
    )


def _show(what: str, outcome: str, seconds: float | None) -> None:
    after = "" if seconds is None else f" after [cyan]{1000 * seconds:,.0f} ms[/cyan]"
    terminal.out.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim]  {escape(what)} → {outcome}{after}")
