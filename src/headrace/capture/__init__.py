"""Read changes from a replication slot: in commit order, confirmed only when they are durable."""

from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.settings import StreamSettings
from headrace.capture.stream import ChangeStream

__all__ = ["ChangeStream", "LogOrigin", "Offset", "StreamSettings"]
