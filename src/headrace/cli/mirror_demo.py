"""`headrace demo --mirror`: keep a shop's tables as Delta tables in a folder, and show how they follow."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from rich.markup import escape

from headrace.cli import terminal
from headrace.cli.demo import (
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    StoryResult,
    await_arrival,
    print_scene,
    scratch_folder,
    short,
)
from headrace.cli.signals import stopping_by_signals
from headrace.config.load import load_deployment
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError
from headrace.mirror.lake import POSITIONS
from headrace.mirror.run import open_mirror
from headrace.model.lsn import Lsn
from headrace.model.units import quantity
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.postgres.connection import connect, execute
from headrace.spark.session import local_spark
from headrace.tools.demo.lake_oracle import actual_rows, expected_rows
from headrace.tools.demo.mirror_script import MIRROR_SCENES, MirrorScene, Row
from headrace.tools.demo.oracle import differences
from headrace.tools.demo.shop import TABLES, create_shop
from headrace.tools.demo.workload import Workload

_TABLES = tuple(dict.fromkeys((*TABLES, *(scene.table for scene in MIRROR_SCENES))))
_INTERVAL_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_FILE = """
[source]
type = "postgres"
connection_url = {url}

[mirror]
location = "lake"
interval = "{interval:.0f}s"

[[mirror.tables]]
tables = ["public.*"]
"""


def run_mirror_demo(*, once: bool, users: int) -> bool:
    """Run the mirror's demo; with `once`, return whether every table was right at the end.

    Raises:
        HeadraceError: the error that stopped the demo.
    """
    stopping = stopping_by_signals()
    result = StoryResult()
    with contextlib.suppress(Stopped), contextlib.ExitStack() as stack:
        with stopping.interrupting():
            with stopping.patient(), terminal.working("starting PostgreSQL …"):
                postgres = stack.enter_context(EmbeddedPostgres())
            terminal.done(f"PostgreSQL on 127.0.0.1:{postgres.port}")
            folder = stack.enter_context(scratch_folder())
            url = postgres.create_database("shop")
            took = create_shop(url, users=users)
            terminal.done(f"a shop with {users:,} users in {took:.1f} s")
            file = folder / "headrace.toml"
            file.write_text(_FILE.format(url=json.dumps(url), interval=_INTERVAL_SECONDS))
        _follow(file, url, stopping, result, once=once)
    terminal.done("stopped; nothing is left running")
    if result.error is not None:
        raise result.error
    return not once or result.wrong == []


def _follow(file: Path, url: str, stopping: Stopping, result: StoryResult, *, once: bool) -> None:
    """Run the mirror; a thread runs the story as soon as the tables are loaded."""
    lake = file.parent / "lake"
    mirror = open_mirror(load_deployment(file, os.environ), terminal.TerminalReporter(), stopping)
    story = threading.Thread(target=_run_story, args=(url, lake, stopping, result), kwargs={"once": once})
    with local_spark() as spark:
        story.start()
        try:
            mirror.run(spark)
        finally:
            stopping.set()
            story.join()


def _run_story(url: str, lake: Path, stopping: Stopping, result: StoryResult, *, once: bool) -> None:
    try:
        while not DeltaTable.is_deltatable(str(lake / POSITIONS)):
            if stopping.wait(_LOOK_SECONDS):
                return
        for what, where in {"the lake": str(lake), "database": f"psql {url}"}.items():
            terminal.out.print(f"  {what:11}{where}", markup=False)
        terminal.out.print()
        _await_position(_flushed(url), lake, stopping)
        # Only now, when the shop itself is in the lake: else the first scene would wait for that.
        for scene in MIRROR_SCENES:
            result.latencies.append(_play(scene, url, lake, stopping))
            if stopping.wait(PAUSE_SECONDS):
                return
        with Workload(url) as workload:
            for _ in range(200):
                workload.step()
        _await_position(_flushed(url), lake, stopping)
        result.wrong = _verify(url, lake)
        _print_summary(result)
        if not once:
            _keep_busy(url, lake, stopping)
    except HeadraceError as error:
        result.error = error
    finally:
        if once or result.error is not None:
            stopping.set()


def _play(scene: MirrorScene, url: str, lake: Path, stopping: threading.Event) -> float:
    """Commit the scene's transaction and wait for its row; return the seconds between."""
    with connect(url, application_name="headrace demo", autocommit=False) as connection:
        for statement in scene.sql:
            execute(connection, statement)
    row, took = await_arrival(lambda: _row(lake, scene), scene.arrived, stopping, _LOOK_SECONDS)
    has_arrived = scene.arrived(row)
    if not has_arrived and stopping.is_set():
        return took  # it was stopped while it looked
    print_scene(scene.title, scene.sql, has_arrived=has_arrived)
    shown = "no row" if row is None else f"{scene.column} = {row.get(scene.column)}"
    terminal.out.print(f"    {scene.table}/{scene.id} [cyan]after {took:,.1f} s[/cyan]  {escape(shown)}")
    return took


def _row(lake: Path, scene: MirrorScene) -> Row:
    """Return the scene's row as the lake has it now."""
    path = str(lake / "public" / scene.table)
    if not DeltaTable.is_deltatable(path):
        return None
    found: list[dict[str, Any]] = (
        DeltaTable(path).to_pyarrow_table(filters=[("id", "=", scene.id)]).to_pylist()
    )
    return found[0] if found else None


def _verify(url: str, lake: Path) -> list[str]:
    """Compare every table of the lake, in the version that the positions name, with a plain SELECT *."""
    positions = DeltaTable(str(lake / POSITIONS)).to_pyarrow_table().to_pylist()
    versions = {row["table_name"]: row["version"] for row in positions}
    wrong: list[str] = []
    for table, expected in expected_rows(url, _TABLES).items():
        different = differences(expected, actual_rows(str(lake), table, versions[table]))
        wrong += [f"{table}: {text}" for text in different]
        mark = "[red]✗[/red]" if different else "[green]✓[/green]"
        terminal.out.print(f"{mark} {table}: {quantity(len(expected), 'row')} == SELECT *")
    for text in wrong:
        terminal.out.print(f"    [red]{escape(text)}[/red]")
    return wrong


def _print_summary(result: StoryResult) -> None:
    ordered = sorted(result.latencies)
    middle = ordered[len(ordered) // 2]
    verdict = "every table is right" if not result.wrong else "a table is WRONG"
    terminal.out.print(
        f"\n{verdict}; commit to row: median {middle:.1f} s, slowest {ordered[-1]:.1f} s, "
        f"with an interval of {_INTERVAL_SECONDS:.0f} s"
    )


def _keep_busy(url: str, lake: Path, stopping: Stopping) -> None:
    """Commit a random transaction each second and show when the lake has it, until stopped."""
    terminal.out.print("\nThe shop stays busy with random transactions; stop with Ctrl-C.\n")
    with Workload(url) as workload:
        while not stopping.wait(1.0):
            changes: Sequence[str] = workload.step()
            begin = time.monotonic()
            _await_position(_flushed(url), lake, stopping)
            what = ", ".join(changes) or "a transaction is rolled back"
            terminal.out.print(
                f"[dim]{time.strftime('%H:%M:%S')}[/dim]  {escape(short(what))} → "
                f"in the lake after [cyan]{time.monotonic() - begin:.1f} s[/cyan]"
            )


def _await_position(position: Lsn, lake: Path, stopping: threading.Event) -> None:
    """Wait until all tables of the lake are complete up to a position."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not stopping.wait(_LOOK_SECONDS) and time.monotonic() < end:
        complete = DeltaTable(str(lake / POSITIONS)).to_pyarrow_table().column("complete_lsn").to_pylist()
        if min(complete) >= position:
            return


def _flushed(url: str) -> Lsn:
    with connect(url, application_name="headrace demo") as connection:
        [(position,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    return int(position)
