"""In which form is an error told: as a line for people, or as JSON for programs?"""

from __future__ import annotations

from contextvars import ContextVar

errors_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)
"""Set by the option `--format` of the command that runs."""
