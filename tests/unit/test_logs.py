"""Each line of the log is one JSON object with the fields that operators search by."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from py4j import java_gateway  # type: ignore[import-untyped]

from headrace.cli.narration import Narrator
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.log_fields import log_fields
from headrace.logs import LogFormat, LogLevel, add_to_each_line, configure_logging
from headrace.reporter import LoggingReporter
from headrace.status import Phase, StatusBoard
from headrace.status.board import Positions


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Return what `configure` gives as standard error; the loggers are as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("headrace")
    before = root.level, ours.level
    yield io.StringIO()
    root.level, ours.level = before
    root.handlers[:] = []


def configure(form: LogFormat, output: io.StringIO) -> None:
    """Configure as a new process does: the handlers of pytest are not there."""
    logging.getLogger().handlers[:] = []
    with contextlib.redirect_stderr(output):
        configure_logging(LogLevel.INFO, form)


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_lines_that_belong_to_a_batch_name_it_and_its_position(output: io.StringIO) -> None:
    configure(LogFormat.JSON, output)
    add_to_each_line(slot="shop")
    log = logging.getLogger("headrace.test")
    with log_fields(batch=7, position="0/16B3748"):
        log.info("applied")
        with log_fields(code="HEADRACE_SINK_BUSY", position=None):
            log.warning("refused", extra={"batch": 8})
        thread = threading.Thread(target=log.info, args=("elsewhere",))
        thread.start()
        thread.join()
    log.info("after")
    applied, refused, elsewhere, after = lines(output)
    assert applied.keys() == {"time", "level", "component", "message", "slot", "batch", "position"}
    assert (applied["component"], applied["level"], applied["slot"]) == ("headrace.test", "INFO", "shop")
    assert (applied["batch"], applied["position"]) == (7, "0/16B3748")
    assert (refused["batch"], refused["position"], refused["code"]) == (8, "0/16B3748", "HEADRACE_SINK_BUSY")
    assert elsewhere.keys() == after.keys() == {"time", "level", "component", "message", "slot"}


def test_a_failure_and_the_recovery_name_the_applied_position(output: io.StringIO) -> None:
    configure(LogFormat.JSON, output)
    board = StatusBoard(reporter=LoggingReporter(logging.getLogger("headrace.run")))
    board.enter(Phase.LIVE)
    board.set_positions(Positions(confirmed=0x1, applied=0x16B3748, current=0x16B3748))
    now = [0.0]
    with Narrator(board, lambda: now[0], draw=False):
        board.record_error(HeadraceError(Kind.CONNECTION, "away"))
        assert until(lambda: "away" in output.getvalue(), 10)
        board.recovered()
        assert until(lambda: "works again" in output.getvalue(), 10)
    away, recovered = lines(output)
    assert (away["code"], away["position"]) == ("HEADRACE_CONNECTION", "0/16B3748")
    assert recovered["position"] == "0/16B3748"
    assert "code" not in recovered


def test_text_has_no_fields(output: io.StringIO) -> None:
    configure(LogFormat.TEXT, output)
    with log_fields(batch=7):
        logging.getLogger("headrace.test").info("applied")
    assert output.getvalue().endswith(" INFO headrace.test: applied\n")


def test_what_py4j_writes_to_the_root_logger_is_left_out(output: io.StringIO) -> None:
    """It logs a trace of each call that fails because the JVM is gone, and raises the error too."""
    configure(LogFormat.TEXT, output)
    for path in (java_gateway.__file__, __file__):
        root = logging.getLogger()
        root.handle(root.makeRecord("root", logging.ERROR, path, 1, "from %s", (path,), None))
    assert output.getvalue().splitlines()[0].endswith(f"ERROR root: from {__file__}")
