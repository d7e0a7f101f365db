"""Name the pipeline, or the secondary sink, to which entries of the hidden indexes belong."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateKey:
    """Names the state of one sink of a pipeline.

    Attributes:
        slot: the pipeline's replication slot.
        prefix: what precedes the names of the hidden indexes.
        sink: the name of a secondary sink; empty for the primary, whose state is the pipeline's.
    """

    slot: str
    prefix: str
    sink: str = ""

    @property
    def id(self) -> str:
        """The id of the state; no slot's name contains a slash or a dot."""
        return f"{self.slot}/{self.sink}" if self.sink else self.slot

    @property
    def meta_index(self) -> str:
        """The name of the hidden index that holds the state."""
        return meta_index(self.prefix)

    def of_pipeline(self) -> StateKey:
        """Return the key of the pipeline that has the sink."""
        return dataclasses.replace(self, sink="")

    def of_sink(self, name: str) -> StateKey:
        """Return the key of a secondary sink of the same pipeline."""
        return dataclasses.replace(self, sink=name)

    def __str__(self) -> str:
        slot = f"the slot {self.slot!r}"
        return f"the sink {self.sink!r} of {slot}" if self.sink else slot


def meta_index(prefix: str) -> str:
    """Return the name of the hidden index with the state of all pipelines under one prefix."""
    return f"{prefix}headrace_meta"
