"""Write document operations to a stream, one JSON envelope each.

An envelope says which sink and version wrote it, when, and in which order. Nothing is fenced: a stream has no
memory. Its reader can, by `lsn`: a document of a lower one is older.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.version import __version__


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class StdoutWriter(DocumentWriter):
    """Writes envelopes to `stream`, which stays the caller's.

    A compact envelope holds the document's bytes unchanged; a pretty one is parsed and printed again, so long
    fractions may lose digits.
    """

    def __init__(
        self, stream: TextIO, *, pretty: bool = False, sink: str = "stdout", now: Callable[[], str] = _now
    ) -> None:
        self._stream = stream
        self._pretty = pretty
        layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
        self._dump = json.JSONEncoder(ensure_ascii=False, **layout).encode
        self._sink = sink
        self._now = now
        self._sequence = 0

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations and flush."""
        upserted = deleted = size = 0
        for operation in operations:
            line = self._envelope(operation)
            self._stream.write(line + "\n")
            size += len(line) + 1
            deleted += operation.body is None
            upserted += operation.body is not None
        self._stream.flush()
        return WriteResult(upserted=upserted, deleted=deleted, bytes=size)

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _envelope(self, operation: DocumentOperation) -> str:
        self._sequence += 1
        header: dict[str, Any] = {
            "sink": self._sink,
            "version": __version__,
            "ts": self._now(),
            "seq": self._sequence,
            "index": operation.index,
            "op": "delete" if operation.body is None else "upsert",
            "id": operation.id,
            "lsn": operation.version,
        }
        if operation.body is None:
            return self._dump(header)
        document = json.loads(operation.body)
        header["meta"] = {"fields": len(document), "bytes": len(operation.body)}
        if self._pretty:
            return self._dump({**header, "document": document})
        text = operation.body.decode().replace("\n", " ")
        return f'{self._dump(header)[:-1]},"document":{text}}}'


def to_stdout(options: Mapping[str, Any]) -> StdoutWriter:
    """Create a writer to this process's standard output, with the sink's option `pretty`."""
    return StdoutWriter(sys.stdout, pretty=bool(options.get("pretty", False)))
