"""`headrace demo`: show the whole pipeline on this machine, with real servers of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape

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
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.running import RunningPipeline
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.postgres.connection import Connection, connect, execute
from headrace.reporter import SilentReporter
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import document
from headrace.tools.demo.script import SCENES, Scene
from headrace.tools.demo.shop import create_shop, write_deployment
from headrace.tools.verification.verify import VerifyOptions, verify

_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.4
_LOOK_SECONDS = 0.002
_WIDTH = 114  # of a line that goes to no terminal
_INDENT = 4
_SOME = 20


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
    story = _Story(stopping, once)
    try:
        with (
            _servers(stopping) as (postgres, opensearch),
            tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as folder,
        ):
            with stopping.interrupting():
                url = postgres.create_database("shop")
                took = create_shop(url, users=users)
                terminal.done(f"a shop with {users:,} users in {took:.1f} s")
                config = write_deployment(Path(folder), url, opensearch.url)
                terminal.say(
                    'replica_identity is "auto" here: Headrace sets the identities that its documents need'
                )
                # Nothing of the environment: a DATABASE_URL there leads to somebody's own database.
                project = open_project(config, {})
            story.follow(project, url, log_level)
    except Stopped:
        pass
    terminal.done("stopped; nothing is left running")
    if story.error is not None:
        raise story.error
    return not once or story.is_right


@contextlib.contextmanager
def _servers(stopping: Stopping) -> Iterator[tuple[EmbeddedPostgres, EmbeddedOpenSearch]]:
    with contextlib.ExitStack() as stack:
        with stopping.interrupting():
            # A server that is interrupted while it starts would leave processes behind.
            with stopping.patient(), terminal.working("starting PostgreSQL …"):
                postgres = stack.enter_context(EmbeddedPostgres())
            terminal.done(f"PostgreSQL on 127.0.0.1:{postgres.port}")
            if not opensearch_present(os.environ):
                where = f"{cache_folder(os.environ)} (headrace demo --clean)"
                terminal.say(f"downloading OpenSearch once: {DOWNLOAD_MB} MB to {where}")
                with terminal.progress("OpenSearch", None) as report:
                    opensearch_jars(find_java(JAVA_MINIMUM), os.environ, report)
            with terminal.working("starting OpenSearch …"):
                opensearch = stack.enter_context(EmbeddedOpenSearch(short_lived=True))
            terminal.done(f"OpenSearch at {opensearch.url}")
        yield postgres, opensearch


@dataclass(slots=True)
class _Story:
    """The demo's scenes, which a thread plays while the deployment runs.

    Attributes:
        stopping: ends the demo.
        once: whether the demo ends with the last scene.
        latencies: the seconds from each commit to its document.
        is_right: whether every index was right at the end.
        error: what kept the scenes from being played.
    """

    stopping: Stopping
    once: bool
    latencies: list[float] = field(default_factory=list)
    is_right: bool = False
    error: HeadraceError | None = None

    def follow(self, project: Project, url: str, log_level: LogLevel) -> None:
        """Run the deployment; a thread plays the scenes as soon as the stream is live.

        Where the run ends by itself, the servers and the console stay up until somebody stops the demo.
        """
        with RunningPipeline(
            project,
            terminal.TerminalReporter(),
            RunOptions(log_level=log_level),
            load=lambda: (project, ()),
            address="127.0.0.1:0",
            stopping=self.stopping,
        ) as running:
            thread = threading.Thread(target=self._play_all, args=(project, url, running.address))
            running.on_live = thread.start
            try:
                running.execute()
            except HeadraceError as error:
                if not self.once and not self.stopping.is_set():
                    terminal.wrong(str(error))
                    terminal.say("the run has ended; its servers keep running until Ctrl-C")
                    self.stopping.wait()
                raise
            finally:
                self.stopping.set()
                if thread.ident is not None:
                    thread.join()

    def _play_all(self, project: Project, url: str, address: str) -> None:
        endpoints = project.resolve()
        client = Client(endpoints.sink)
        try:
            for what, where in {
                "console": f"http://{address}/",
                "documents": f"{endpoints.sink.urls[0]}/users/_search?pretty",
                "state": f"http://{address}/status",
                "metrics": f"http://{address}/metrics",
                "database": f"psql {url}",
            }.items():
                terminal.out.print(f"  {what:11}{where}", markup=False)
            terminal.out.print()
            with connect(endpoints.database, application_name="headrace demo") as connection:
                for scene in SCENES:
                    took = self._play(scene, connection, client)
                    if scene.sql:  # a scene without SQL shows the result of an earlier one
                        self.latencies.append(took)
                    if self.stopping.wait(_PAUSE_SECONDS):
                        return
            self._conclude(project)
        except HeadraceError as error:
            self.error = error
        finally:
            client.close()
            if self.once or self.error is not None:
                self.stopping.set()

    def _play(self, scene: Scene, connection: Connection, client: Client) -> float:
        """Commit the scene's transaction and wait for its document; return the seconds between.

        Where the demo is stopped, or a minute has passed, it goes on.
        """
        with connection.transaction():
            for statement in scene.sql:
                execute(connection, statement)
        begin = time.monotonic()
        found = document(client, *scene.document)
        while not scene.arrived(found) and time.monotonic() - begin < _PATIENCE_SECONDS:
            if self.stopping.wait(_LOOK_SECONDS):
                return 0.0  # it was stopped while it looked
            found = document(client, *scene.document)
        took = time.monotonic() - begin
        _print_mark(scene.title, is_right=scene.arrived(found), style="bold")
        for statement in scene.sql:
            terminal.out.print(f"    [dim]{escape(_short(statement))}[/dim]")
        name = "/".join(scene.document)
        after = f"after {1000 * took:,.0f} ms" if scene.sql else "by then"
        shown = json.dumps(scene.shown(found), ensure_ascii=False) if found is not None else "no document"
        rest = _short(f"  {shown}", len(f"{name} {after}"))
        terminal.out.print(f"    {name} [cyan]{after}[/cyan]{escape(rest)}")
        return took

    def _conclude(self, project: Project) -> None:
        """Compare every index with the database, as `headrace verify` does, and print the result."""
        is_right = True
        for name in project.specs:
            report = verify(project, name, VerifyOptions(), SilentReporter())
            is_right = is_right and report.right
            text = f"{name}: {quantity(report.documents, 'document')} compared with the database"
            _print_mark(text, is_right=report.right)
        self.is_right = is_right
        verdict = "every index is right" if is_right else "an index is WRONG"
        middle, slowest = 1000 * statistics.median(self.latencies), 1000 * max(self.latencies)
        terminal.out.print(
            f"\n{verdict}; commit to document: median {middle:.0f} ms, slowest {slowest:.0f} ms"
        )
        if not self.once:
            terminal.out.print("\nChange rows of the shop, and look at the console; stop with Ctrl-C.\n")


def _print_mark(text: str, *, is_right: bool, style: str = "none") -> None:
    mark = "[green]✓[/green]" if is_right else "[red]✗[/red]"
    terminal.out.print(f"{mark} [{style}]{escape(text)}[/{style}]")


def _short(text: str, before: int = 0) -> str:
    """Cut `text` to one line, indented and with `before` characters before it."""
    room = max((terminal.out.width if terminal.out.is_terminal else _WIDTH) - _INDENT - before, _SOME)
    return text if len(text) <= room else text[: room - 1] + "…"
