"""`headrace mirror`: keep tables of a lake as the database's are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from headrace.cli import terminal
from headrace.cli.context import CommandContext, host_names
from headrace.cli.signals import stopping_by_signals
from headrace.config.load import load_deployment
from headrace.logs import LogFormat, WorkerLogs, add_to_each_line
from headrace.mirror.run import open_mirror
from headrace.reporter import LoggingReporter, Reporter
from headrace.spark.session import local_spark
from headrace.spark.settings import chosen_master, given_settings
from headrace.status.mirror_board import MirrorServer


def run_mirror(
    context: CommandContext,
    master: str | None,
    conf: Sequence[str],
    public_address: str | None,
    public_hosts: str,
    *,
    once: bool,
    reload: bool,
) -> None:
    """Run the mirror of a deployment file until a signal; with `once` up to the log's present end.

    Raises:
        HeadraceError: the error that ended it.
    """
    draw = terminal.err.is_terminal and context.log_format is LogFormat.TEXT
    logger = logging.getLogger("headrace.mirror")
    report: Reporter = terminal.TerminalReporter() if draw else LoggingReporter(logger)
    stopping = stopping_by_signals(cut_off_code=1 if once else 0)
    mirror = open_mirror(load_deployment(context.config, context.environ), report, stopping)
    add_to_each_line(slot=mirror.mirrored.config.slot)
    settings = given_settings(conf, context.environ)
    with (
        # The pages come before Spark: they answer probes while it starts.
        contextlib.nullcontext()
        if public_address is None
        else MirrorServer(mirror.mirrored.board, public_address, host_names(public_hosts)) as pages,
        local_spark(
            master=chosen_master(master, conf, settings),
            given=mirror.session_settings(settings, context.environ),
            logs=WorkerLogs(context.log_level, context.log_format, mirror.mirrored.config.slot),
        ) as spark,
        terminal.timed(),
    ):
        if pages is not None:
            report.info(f"status on http://{pages.address}/status")
        mirror.run(spark, once=once, reload=reload)
    report.done("everything that was committed is in the lake" if once else "stopped")
