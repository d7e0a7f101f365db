"""What does an operator see: state, metrics, health?"""

from headrace.status.board import Counts, IndexPhase, StatusBoard
from headrace.status.phases import Event, Phase
from headrace.status.server import StatusServer

__all__ = ["Counts", "Event", "IndexPhase", "Phase", "StatusBoard", "StatusServer"]
