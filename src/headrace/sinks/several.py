"""How does each operation reach several sinks, none of which holds up or harms another? (decision 15)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from headrace.errors import HeadraceError
from headrace.model import DocumentOperation
from headrace.sinks.contract import DocumentWriter, WriteResult

_PORTION = 1_000


@dataclass(slots=True)
class Share:
    """What became of a run of operations in one sink.

    Attributes:
        result: of what it has taken.
        failure: why it took no more; whether it took what was under way is unknown. The rest of the run, and
            that, is to be assembled for it anew, or parked.
        untaken: how many operations it has not taken, or may not have.
    """

    result: WriteResult = field(default_factory=WriteResult)
    failure: HeadraceError | None = None
    untaken: int = 0


class SeveralWriters:
    """Gives each operation to each sink, side by side; used from one thread.

    A sink that fails gets nothing more of the same run, and the others get all of it. Memory holds a
    portion of the run at a time, so the slowest sink sets the pace.

    Args:
        writers: by the sink's name; they become this one's, to be closed.
    """

    def __init__(self, writers: Mapping[str, DocumentWriter]) -> None:
        self._writers = dict(writers)
        self._threads = ThreadPoolExecutor(max(1, len(self._writers)), "headrace-sink")

    def write(self, operations: Iterable[DocumentOperation]) -> dict[str, Share]:
        """Write all to all; what became of it, by sink. Errors of a sink are in its share."""
        shares = {name: Share() for name in self._writers}
        left = iter(operations)
        while portion := list(islice(left, _PORTION)):
            under_way = {
                name: self._threads.submit(self._writers[name].write, portion)
                for name, share in shares.items()
                if share.failure is None
            }
            for name, share in shares.items():
                if name not in under_way:
                    share.untaken += len(portion)
                    continue
                try:
                    share.result += under_way[name].result()
                except HeadraceError as error:
                    share.failure = error
                    share.untaken += len(portion)
        return shares

    def close(self) -> None:
        """Close every writer; idempotent."""
        self._threads.shutdown()
        for writer in self._writers.values():
            writer.close()
