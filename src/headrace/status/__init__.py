"""Show an operator the state, metrics and health of a run."""

from headrace.status.board import Counts, IndexPhase, StatusBoard
from headrace.status.phases import Event, Phase
from headrace.status.server import StatusServer

__all__ = ["Counts", "Event", "IndexPhase", "Phase", "StatusBoard", "StatusServer"]
