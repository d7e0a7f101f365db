"""How do changes leave the log? Slot to messages to changes, in order, confirmed only when durable."""

from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.reading import StreamSettings
from headrace.capture.stream import ChangeStream

__all__ = ["ChangeStream", "LogOrigin", "Offset", "StreamSettings"]
