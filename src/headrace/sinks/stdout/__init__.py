"""Standard output as a sink: every operation as one JSON envelope, for eyes and for pipes."""

from headrace.sinks.stdout.writer import StdoutWriter, to_stdout

__all__ = ["StdoutWriter", "to_stdout"]
