"""`headrace reload`: let the running pipeline take up changed files."""

from __future__ import annotations

import time

from headrace.cli import terminal
from headrace.cli.context import CommandContext
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.reloading import ReloadResult
from headrace.state.lease import LeaseHolder
from headrace.state.reload_request import ReloadAnswer, ReloadRequest

_LOOK_SECONDS = 0.25


def request_reload(context: CommandContext, *, wait: float) -> None:
    """Ask the running pipeline to read its files again, and wait until it has taken them up.

    Args:
        context: the deployment, or the private address of its run.
        wait: seconds to wait for the answer.

    Raises:
        ErrorGroup: every mistake that kept the run from taking them up.
        HeadraceError: BEHIND without an answer in time; SLOT_UNKNOWN, CONFIG, CONNECTION, SINK_UNREACHABLE.
    """
    client = context.open_control()
    if client is not None:
        with terminal.working("waiting for the running pipeline …"):
            result = client.follow(client.order("/v1/reload"), wait)
        terminal.done(f"the files are taken up: {ReloadResult(**result)}")
        return
    endpoints, key = context.open_endpoints()
    with AppliedPosition(endpoints, key) as applied:
        applied.check()
        request = ReloadRequest(applied.client, key)
        number = request.submit()
        with terminal.working("waiting for the running pipeline …"):
            running = applied.find_running()
            answer = None if running is None else _wait(request, number, wait, running)
        if answer is None:
            terminal.say("nothing runs; the next `headrace run` reads the files")
            return
    if answer.errors:
        raise ErrorGroup(
            [HeadraceError.find(text) or HeadraceError(Kind.CONFIG, text) for text in answer.errors]
        )
    terminal.done(f"the files are taken up: {answer.result}")


def _wait(request: ReloadRequest, number: str, seconds: float, running: LeaseHolder) -> ReloadAnswer:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (answer := request.answer_to(number)) is not None:
            return answer
        time.sleep(_LOOK_SECONDS)
    raise HeadraceError(
        Kind.BEHIND,
        f"the run ({running}) has not answered after {seconds:g} s",
        "`headrace status` says what it waits for; it reads the files once it can.",
    )
