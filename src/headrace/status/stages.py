"""Hold how much each stage of the stream has done, and how long it took. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stages:
    """What the stages of the stream have done since it was started last.

    Seconds are those of the workers, summed: two tasks that work for one second beside each other count two.

    Attributes:
        batches: batches with changes.
        captured: changed rows.
        resolved: documents that these touch.
        assembled: documents that were read from the database.
        written: documents that the sink has taken.
        capture_seconds: taking changes from the buffer and planning them, without waiting for any.
        resolve_seconds: from rows to documents' keys.
        assemble_seconds: from keys to documents.
        write_seconds: waiting for the sink.
        tables: changed rows by table, `SCHEMA.TABLE`.
    """

    batches: int = 0
    captured: int = 0
    resolved: int = 0
    assembled: int = 0
    written: int = 0
    capture_seconds: float = 0.0
    resolve_seconds: float = 0.0
    assemble_seconds: float = 0.0
    write_seconds: float = 0.0
    tables: Mapping[str, int] = field(default_factory=dict)


NO_STAGES = Stages()
