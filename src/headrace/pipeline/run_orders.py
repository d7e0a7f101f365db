"""What the former core of the run does with requests for a whole run: nothing, and it goes with that core."""

from headrace.state.former_requests import RunRequest
from headrace.status.board import StatusBoard


def carry_out(_board: StatusBoard, _request: RunRequest) -> None:
    """Do nothing: `OrderDesk` carries such orders out."""
