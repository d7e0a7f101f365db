"""`headrace run`: signals, status server, and the run itself."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from headrace.cli import terminal
from headrace.cli.narration import Narrator
from headrace.cli.signals import stopping_by_signals
from headrace.config.deployment import OnGap
from headrace.config.spark_conf import chosen_master, given_settings
from headrace.errors import HeadraceError
from headrace.pipeline.applied_position import Applied
from headrace.pipeline.project import Here, open_project
from headrace.pipeline.run import Run, RunOptions
from headrace.pipeline.stopping import Stopped
from headrace.pipeline.wait_service import RunWaits
from headrace.spark.settings import is_local
from headrace.status.board import StatusBoard
from headrace.status.server import StatusServer
from headrace.status.sinks import ReportsPort


def run_options(
    master: str | None,
    conf: Sequence[str],
    log_level: str,
    environ: Mapping[str, str],
    *,
    on_gap: OnGap | None = None,
) -> RunOptions:
    """What the words of the command and Spark's own file say together.

    Raises:
        HeadraceError: USAGE, CONFIG.
    """
    given = given_settings(conf, environ)
    return RunOptions(chosen_master(master, conf, given), log_level, given, on_gap)


def run_deployment(
    config: Path,
    environ: Mapping[str, str],
    slot: str | None,
    publication: str | None,
    *,
    public_address: str | None,
    options: RunOptions,
) -> None:
    """Run a deployment until it is told to stop.

    Raises:
        HeadraceError: what keeps it from running.
    """
    project = open_project(config, environ, slot=slot, publication=publication)
    here = project.resolve()
    stopping = stopping_by_signals()
    board = StatusBoard(project.specs, further=project.further, reporter=terminal.TerminalReporter())
    server = project.deployment.server
    if public_address is None and "public_address" in server.model_fields_set:
        public_address = server.public_address
    with contextlib.ExitStack() as stack:
        if public_address is not None:
            waits = stack.enter_context(RunWaits(lambda: Applied(here, project.slot, project.prefix)))
            status = stack.enter_context(StatusServer(board, public_address, waits))
            terminal.say(f"status at http://{status.address}/status")
        port = stack.enter_context(ReportsPort(board.sinks, beside=_reached(options.master, here)))
        project = dataclasses.replace(project, reports=port.to(project.sink_name))
        stack.enter_context(terminal.timed())
        stack.enter_context(Narrator(board, time.monotonic))
        try:
            Run(project, here, board, stopping, options=options).execute()
        except Stopped:
            pass
        except HeadraceError as error:
            board.failed(error)
            raise
    terminal.done("stopped")


def _reached(master: str, here: Here) -> tuple[str, int] | None:
    """What the machines of the workers reach as we do, the search cluster; None where they are this one."""
    if is_local(master):
        return None
    url = urlsplit(here.sink.urls[0])
    return url.hostname or "localhost", url.port or 9200
