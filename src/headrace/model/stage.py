"""Name the stages on the way of a change into documents."""

from __future__ import annotations

import enum


class Stage(enum.StrEnum):
    """A stage on the way of a change; the values are labels of metrics."""

    CAPTURE = "capture"
    """The server sends the log, the reader decodes it."""
    PLAN = "plan"
    """A batch is cut and divided among tasks."""
    RESOLVE = "resolve"
    """Which documents do the changes touch?"""
    ASSEMBLE = "assemble"
    """The documents are read from the database."""
    WRITE = "write"
    """The sink takes the documents."""
    CONFIRM = "confirm"
    """The applied position is saved, and confirmed to the slot."""
