"""Set up logging of a command, and of the processes of its run: lines for people, or JSON objects."""

from __future__ import annotations

import enum
import functools
import json
import logging
import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pythonjsonlogger.json import JsonFormatter

from headrace.log_fields import LogFieldsFilter


class LogLevel(enum.StrEnum):
    """Levels of log messages."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


class LogFormat(enum.StrEnum):
    """Formats of log messages."""

    TEXT = "text"
    JSON = "json"


logs_as_json: ContextVar[bool] = ContextVar("logs_as_json", default=False)
"""Whether log messages, and the error that ends the command, are JSON objects."""

_FIELDS = {"asctime": "time", "levelname": "level", "name": "component"}


def configure_logging(level: LogLevel, form: LogFormat) -> None:
    """Write log messages, and Python's warnings, to the standard error, with times in UTC.

    A JSON object has `time`, `level`, `component` and `message`, and where they are known `slot`, `batch`,
    `position` (an LSN) and `code` (of an error); see `headrace.log_fields`.
    """
    logs_as_json.set(form is LogFormat.JSON)
    handler = logging.StreamHandler()
    handler.addFilter(LogFieldsFilter())
    handler.setFormatter(_json_formatter() if form is LogFormat.JSON else _text_formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # A line that is no JSON breaks who reads the others.
    logging.captureWarnings(form is LogFormat.JSON)
    logging.getLogger("headrace").setLevel(level.value.upper())
    is_debug = level is LogLevel.DEBUG
    # They report each retry, which the run reports once.
    for noisy in ("urllib3", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING if is_debug else logging.ERROR)
    if not is_debug:
        # One repeats that a collector is away, which the run has reported; one logs a trace of each call
        # that fails because the JVM is gone, and raises the error too.
        for repeating in ("opentelemetry", "py4j"):
            logging.getLogger(repeating).setLevel(logging.CRITICAL)
        handler.addFilter(_is_not_py4js)


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Whether a record is not one of those that py4j writes to the root logger."""
    return record.name != "root" or Path(record.pathname).parent.name != "py4j"


def add_to_each_line(**fields: str) -> None:
    """Add the same fields, for example the slot, to every JSON object."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            handler.formatter.static_fields.update(fields)


@dataclass(frozen=True, slots=True)
class WorkerLogs:
    """How the Python processes that Spark starts for a run log.

    Attributes:
        slot: of the run, which each JSON object names.
    """

    level: LogLevel
    form: LogFormat
    slot: str

    VARIABLE = "HEADRACE_WORKER_LOGS"
    """The environment variable in which these processes find it."""

    def to_text(self) -> str:
        """Return the value of the variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote."""
        found: Mapping[str, str] = json.loads(text)
        return cls(LogLevel(found["level"]), LogFormat(found["form"]), found["slot"])


@functools.cache
def configure_worker_logging() -> None:
    """Set up logging of this process as the run does that started it; once, and not in other programs."""
    text = os.environ.get(WorkerLogs.VARIABLE)
    if text is not None:
        logs = WorkerLogs.from_text(text)
        configure_logging(logs.level, logs.form)
        add_to_each_line(slot=logs.slot)


def _json_formatter() -> logging.Formatter:
    formatter = JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=_FIELDS, json_ensure_ascii=False
    )
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return formatter


def _text_formatter() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter
