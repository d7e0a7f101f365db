"""Hold the form of error messages: a line of text, or JSON."""

from __future__ import annotations

from contextvars import ContextVar

errors_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)
"""Set by the option `--format` of the command that runs."""
