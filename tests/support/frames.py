"""Frames of the replication protocol, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.pgoutput.frames import Frames


def frames_of(messages: Iterable[bytes]) -> Frames:
    """Put messages behind each other, as they are received."""
    frames = Frames()
    for message in messages:
        frames.data += message
        frames.ends.append(len(frames.data))
    return frames


def messages_of(frames: Frames) -> Iterator[bytes]:
    """Yield each message."""
    begin = 0
    for end in frames.ends:
        yield bytes(frames.data[begin:end])
        begin = end
