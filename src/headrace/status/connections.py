"""Bound what clients can hold of the process: connections, and the time for a request or an answer.

The servers live in the process of the pipeline. A client that sends half a request, takes no answer,
or opens a thousand connections must not take the pipeline's file descriptors or memory.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
PATIENCE_SECONDS = 10.0
"""For a whole request, and for a client that does not take what is sent."""


class _Limit:
    """Cuts a connection off unless it is lifted in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def set(self, transport: asyncio.Transport) -> None:
        """Begin to count, where that was not begun."""
        if self._timer is None:
            # abort and not close, which waits until the client has taken what is left.
            self._timer = self._loop.call_later(PATIENCE_SECONDS, transport.abort)

    def lift(self) -> None:
        """Count no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedConnection(H11Protocol):
    """One connection; of too many, the oldest without a request under way is cut off, else the oldest."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.began = self.loop.time()
        self._for_request, self._for_answer = _Limit(self.loop), _Limit(self.loop)

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the connection; its first request must come soon."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._for_request.set(transport)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the rest must come soon."""
        super().data_received(data)
        if self.is_answering:
            self._for_request.lift()
        else:
            self._for_request.set(self.transport)

    def on_response_complete(self) -> None:
        """Note that a request is answered; uvicorn limits how long it waits for the next one."""
        self._for_request.lift()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not take what is sent."""
        super().pause_writing()
        self._for_answer.set(self.transport)

    def resume_writing(self) -> None:
        """Note that the client takes what is sent."""
        super().resume_writing()
        self._for_answer.lift()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._for_request.lift()
        self._for_answer.lift()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Cut off the oldest of the others, until there are few enough."""
        connections = (other for other in self.connections if isinstance(other, BoundedConnection))
        open_ = [other for other in connections if not other.transport.is_closing()]
        # Who has asked is answered: what goes first is a connection that is only held.
        open_.sort(key=lambda other: (other.is_answering, other.began))
        others = (other for other in open_ if other is not self)
        for other in islice(others, max(0, len(open_) - MOST_CONNECTIONS)):
            other.transport.abort()
