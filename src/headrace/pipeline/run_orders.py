"""Carry out orders that concern a whole run: pause and resume the stream, change the log level.

Another process gives them through the cluster, with `request_of_run`.
"""

from __future__ import annotations

import logging
import time
from typing import Literal, get_args

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.state.run_requests import RunRequest, RunRequestKind, RunRequests
from headrace.status.board import StatusBoard
from headrace.status.phases import Phase

LogLevelName = Literal["debug", "info", "warning"]
LOG_LEVELS: tuple[LogLevelName, ...] = get_args(LogLevelName)
_LOOK_SECONDS = 0.2


def pause(board: StatusBoard, by: str) -> None:
    """Plan no further batch until `resume`; the batch that runs is finished.

    The slot keeps the log meanwhile.

    Raises:
        HeadraceError: USAGE: this process stands by, so another one plans the batches.
    """
    _check_works(board)
    if board.control.pause(by):
        board.report.warning(f"paused by {by}: changes wait in the log, which the slot retains")


def resume(board: StatusBoard, by: str) -> None:
    """Plan batches again.

    Raises:
        HeadraceError: as `pause`.
    """
    _check_works(board)
    if board.control.resume():
        board.report.info(f"resumed by {by}")


def _check_works(board: StatusBoard) -> None:
    if board.phase is Phase.STANDBY:
        raise HeadraceError(
            Kind.USAGE,
            "this process stands by: another one runs the deployment, and has not heard the order",
            "Give the order to that one, or by `headrace pause` and `headrace resume` through the cluster.",
        )


def set_log_level(board: StatusBoard, level: str, by: str) -> None:
    """Log messages of this process from `level` on.

    Raises:
        HeadraceError: USAGE for an unknown level.
    """
    if level not in LOG_LEVELS:
        raise HeadraceError(Kind.USAGE, f"{level!r} is no log level", f"Write {', '.join(LOG_LEVELS)}.")
    logging.getLogger("headrace").setLevel(level.upper())
    board.report.info(f"log level {level}, set by {by}")


def carry_out(board: StatusBoard, request: RunRequest) -> None:
    """Carry out a request that came through the cluster; one that is not understood is reported."""
    if request.kind == "pause":
        pause(board, request.by)
    elif request.kind == "resume":
        resume(board, request.by)
    else:
        try:
            set_log_level(board, request.value, request.by)
        except HeadraceError as error:
            board.report.warning(str(error))


def request_of_run(
    applied: AppliedPosition,
    requests: RunRequests,
    kind: RunRequestKind,
    *,
    by: str,
    value: str = "",
    seconds: float,
) -> None:
    """Request something of the run of a pipeline, and wait until it has carried that out.

    Raises:
        HeadraceError: BEHIND: no run has taken the request within `seconds`; it is withdrawn then.
            SLOT_UNKNOWN, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    applied.check()
    number = requests.submit(kind, by, value)
    end = time.monotonic() + seconds
    while pending := [request for request in requests.read() if request.number == number]:
        if time.monotonic() > end:
            requests.done(pending[0])
            raise HeadraceError(
                Kind.BEHIND,
                f"no run has taken the request within {seconds:g} s",
                "Look whether `headrace run` is alive and past its start.",
            )
        time.sleep(_LOOK_SECONDS)
