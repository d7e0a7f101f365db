"""Where the former core of the run looks for `ReloadRequest`; goes with it."""

from headrace.state.former_requests import ReloadRequest

__all__ = ["ReloadRequest"]
