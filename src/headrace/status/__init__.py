"""Show an operator the state, metrics and health of a run."""

from headrace.status.board import IndexPhase, StatusBoard
from headrace.status.phases import Phase
from headrace.status.server import StatusServer

__all__ = ["IndexPhase", "Phase", "StatusBoard", "StatusServer"]
