"""Hold many messages in one buffer, with the place of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

SLACK = 16
"""Bytes after the last message, so that a number can be read before its position is checked."""


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

    def slice(self, first: int, stop: int) -> MessageBatch:
        """Return the messages in [first, stop), without a copy."""
        return MessageBatch(self.data, self.begin[first:stop], self.end[first:stop])

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


def windows(data: Bytes, form: str) -> npt.NDArray[Any]:
    """Return the number that begins at each address of a buffer, without a copy."""
    return np.ndarray((max(len(data) - np.dtype(form).itemsize + 1, 0),), form, data, strides=(1,))


def take_values(
    data: Bytes, begin: Numbers, size: Numbers, wanted: Numbers, missing: npt.NDArray[np.bool_] | None
) -> pa.BinaryArray:
    """Copy values from a buffer as one column.

    The addresses ascend, so one Arrow array can cover the whole buffer without a copy: its even elements are
    the values, its odd ones the bytes between them.

    Args:
        data: the buffer.
        begin, size: where each value lies (bytes), `(values,)`.
        wanted: the indices of those that are copied.
        missing: which of these are null; None: none is.
    """
    # Offsets of 32 bits: a batch stays far below 2 GiB.
    offsets = np.empty(2 * len(begin) + 1, np.int32)
    offsets[0:-1:2] = begin
    offsets[1::2] = begin + size
    # The last odd element is empty: the bytes after the last value belong to nobody.
    offsets[-1] = offsets[-2] if len(offsets) > 1 else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return values.take(pa.array(wanted * 2, mask=missing))
