"""`headrace run`: run a deployment until a signal, with a status server."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from headrace.cli import terminal
from headrace.cli.context import CommandContext, host_names
from headrace.cli.narration import Narrator
from headrace.cli.signals import reload_by_signal, stopping_by_signals
from headrace.config.deployment import OnGap
from headrace.logs import LogFormat, add_to_each_line
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.running import RunningPipeline
from headrace.reporter import LoggingReporter, Reporter
from headrace.spark.settings import chosen_master, given_settings

_LOGGER = "headrace.run"


def run_deployment(
    context: CommandContext,
    master: str | None,
    conf: Sequence[str],
    *,
    public_address: str | None,
    public_hosts: str,
    private_address: str | None,
    on_gap: OnGap | None,
    standby: bool,
) -> None:
    """Run a deployment until a signal stops it.

    Raises:
        HeadraceError: USAGE, CONFIG; the error that ended the run.
    """
    settings = given_settings(conf, context.environ)
    chosen = chosen_master(master, conf, settings)
    options = RunOptions(chosen, context.log_level, context.log_format, settings, on_gap, standby=standby)
    project = context.open_project()
    server = project.deployment.server
    if public_address is None and "public_address" in server.model_fields_set:
        public_address = server.public_address
    if (
        private_address is None
        and "private_address" in server.model_fields_set
        and project.deployment.control.tokens  # a file of flusso has the address, and no tokens
    ):
        private_address = server.private_address
    draw = terminal.err.is_terminal and context.log_format is LogFormat.TEXT
    report: Reporter = terminal.TerminalReporter() if draw else LoggingReporter(logging.getLogger(_LOGGER))
    # One log may hold the lines of several deployments.
    add_to_each_line(slot=project.slot)
    stopping = stopping_by_signals()
    running = RunningPipeline(
        project,
        report,
        options,
        load=context.load_project,
        address=public_address,
        hosts=host_names(public_hosts),
        private_address=private_address,
        stopping=stopping,
    )
    # Before the run begins: until then SIGHUP would end the process.
    reload_by_signal(running.desk.want_reload, stopping)
    with running:
        if running.address is not None:
            report.info(f"console at http://{running.address}/, status at http://{running.address}/status")
        if running.private_address is not None:
            report.info(f"orders are taken at {running.private_address}, with a token")
        with terminal.timed(), Narrator(running.board, time.monotonic, draw=draw):
            running.execute()
    report.done("stopped")
