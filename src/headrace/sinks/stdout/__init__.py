"""Standard output as a sink: every operation as one JSON envelope, for eyes and for pipes."""

from headrace.sinks.stdout.relay import Relay, RelayWriter
from headrace.sinks.stdout.writer import StdoutWriter, to_stdout

__all__ = ["Relay", "RelayWriter", "StdoutWriter", "to_stdout"]
