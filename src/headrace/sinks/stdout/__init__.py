"""Standard output as a sink: every operation as one JSON envelope, for eyes and for pipes."""

from headrace.sinks.stdout.writer import to_stdout

__all__ = ["to_stdout"]
