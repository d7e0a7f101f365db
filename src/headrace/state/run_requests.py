"""Where the former core of the run looks for `RunRequests`; goes with it."""

from headrace.state.former_requests import RunRequest, RunRequests

__all__ = ["RunRequest", "RunRequests"]
