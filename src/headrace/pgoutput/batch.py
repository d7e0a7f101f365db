"""Hold many messages in one buffer, with the place of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

SLACK = 16
"""Bytes behind the last message, so that a number can be read before its position is checked."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Plugin messages in the order of the log.

    Attributes:
        data: the buffer, `(size,)`; at least `SLACK` bytes follow the last message.
        begin, end: where each message's payload begins and ends in `data`, `(messages,)`, ascending.
    """

    data: Bytes
    begin: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.begin)

    def payload(self, index: int) -> bytes:
        """Return the bytes of one message."""
        return self.data[self.begin[index] : self.end[index]].tobytes()

    def slice(self, first: int, behind: int) -> MessageBatch:
        """Return the messages in [first, behind), without a copy."""
        return MessageBatch(self.data, self.begin[first:behind], self.end[first:behind])

    @classmethod
    def join(cls, messages: Sequence[bytes | memoryview]) -> MessageBatch:
        """Create a batch from messages."""
        return cls.within(bytearray(b"").join(messages), list(accumulate(map(len, messages))))

    @classmethod
    def within(cls, data: bytearray, ends: Sequence[int]) -> MessageBatch:
        """Create a batch of the messages that follow each other in `data`; it takes over `data`."""
        data += bytes(SLACK)
        end = np.fromiter(ends, np.int64, len(ends))
        begin = np.empty_like(end)
        begin[:1] = 0
        begin[1:] = end[:-1]
        return cls(np.frombuffer(data, np.uint8), begin, end)
