"""Decide what a worker does while its sink fails: wait, give up soon, or defer the documents (decision 0068).

The primary sink is waited for. A batch has some seconds for a secondary sink. What the sink has not taken by
then is deferred in the cluster that keeps the state, and `CatchUp` writes it later. So a batch is done when
its documents are durable in that cluster, and durable or deferred for each secondary sink.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from tenacity import Retrying, retry_if_exception

from headrace.errors import HeadraceError, Kind, Retry, retrying, unexpected
from headrace.model.changes import DocumentOperation, Key
from headrace.model.lsn import Lsn
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.state import DeferredKeys
from headrace.state.sink_notes import SecondarySinkNotes

# How long a batch sends requests to a secondary sink; the last one may take as long again.
LIMIT_SECONDS = 5.0

_CHECK_SECONDS = 1.0
_GUEST = "Look into the package that offers it."
# The errors of a cluster that does not take documents now.
UNAVAILABLE = {Kind.SINK_BUSY, Kind.SINK_UNREACHABLE}


class SinkFailure(HeadraceError):  # noqa: N818 - as opposed to errors of what is written
    """A secondary sink failed, as opposed to an error in assembling what is written to it."""

    @classmethod
    def of(cls, error: HeadraceError, units: Iterable[str] = ()) -> SinkFailure:
        """Return the error as a failure of the sink, which concerns these units."""
        failure = cls(error.kind, error.cause, error.remedy, error.detail)
        return failure.concerning(tables=error.tables, units=units)


def is_from_sink(error: BaseException) -> bool:
    """Whether an error comes from a secondary sink, and not from the cluster that keeps the state."""
    return isinstance(error, SinkFailure) or (isinstance(error, HeadraceError) and error.kind in UNAVAILABLE)


class SinkFailureWriter(DocumentWriter):
    """Separates the failures of a secondary sink from those of the iterator that yields its operations.

    Args:
        writer: owned from now on; closed with this one.
        unit_of: tells by which id errors name a generation, of which the sink knows only the name.
    """

    def __init__(self, writer: DocumentWriter, unit_of: Callable[[str], str]) -> None:
        self._writer = writer
        self._unit_of = unit_of

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations.

        Raises:
            SinkFailure: the sink's own failure; SINK_BUSY where a guest raised anything but a HeadraceError,
                or has not taken all operations.
            HeadraceError: what iterating over `operations` raised.
        """
        raised: list[Exception] = []
        is_exhausted = False

        def watched() -> Iterator[DocumentOperation]:
            nonlocal is_exhausted
            try:
                yield from operations
            except Exception as error:
                raised.append(error)
                raise
            is_exhausted = True

        try:
            result = self._writer.write(watched())
        except Exception as error:
            # By identity of what the iterator raised: the same kind may come from either side.
            if any(error is passed for passed in raised):
                raise
            if not isinstance(error, HeadraceError):
                raise SinkFailure.of(unexpected("a sink failed", error, Kind.SINK_BUSY, _GUEST)) from error
            raise SinkFailure.of(error, map(self._unit_of, error.units)) from error
        # A guest may have swallowed an error, or returned early: the rest would be missing without a word.
        if raised:
            raise raised[0]
        if not is_exhausted:
            cause = "a sink has returned before it took all documents"
            raise SinkFailure.of(HeadraceError(Kind.SINK_BUSY, cause, _GUEST))
        return result

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class FailurePolicy(ABC):
    """What a worker does while its sink fails; where nothing else is said, an error ends the task."""

    def begin_batch(self) -> None:  # noqa: B027 - most policies count no time
        """Begin to count the time that a batch waits for the sink."""

    @abstractmethod
    def attempts(self) -> Retrying:
        """Return the attempts of an action in which the sink takes part."""

    def is_away(self) -> bool:
        """Whether documents are deferred without trying the sink."""
        return False

    def note_failure(self, error: HeadraceError) -> None:
        """Note that the sink is away; the caller then defers the documents.

        Raises:
            HeadraceError: the error itself, where it is not the sink's or nothing is deferred for it.
        """
        raise error

    def defer(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:
        """Store keys durably, whose documents are written later.

        Raises:
            NotImplementedError: what does not apply changes defers nothing.
        """
        raise NotImplementedError


class WaitForSink(FailurePolicy):
    """The policy of the primary sink: actions are repeated until they succeed.

    Args:
        deferred: takes the keys of large changes.
        ending: ends all attempts once it is set.
    """

    def __init__(self, deferred: DeferredKeys, ending: threading.Event | None = None) -> None:
        self._deferred = deferred
        self._ending = ending

    def attempts(self) -> Retrying:
        """Return attempts without an end of their own."""
        return retrying(ending=self._ending)

    def defer(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:
        """Store keys; see `DeferredKeys.add`."""
        self._deferred.add(generation, batches, version)


class GiveUpSoon(FailurePolicy):
    """The policy for a secondary sink where no batch waits: an action fails after some seconds.

    Args:
        ending: ends all attempts once it is set.
    """

    def __init__(self, ending: threading.Event | None = None) -> None:
        self._ending = ending or threading.Event()

    def attempts(self) -> Retrying:
        """Return the attempts of some seconds."""
        return _attempts_until(time.monotonic() + LIMIT_SECONDS, longest=2.0, ending=self._ending)


class DeferDocuments(FailurePolicy):
    """The policy for a secondary sink beside the stream: documents that it does not take are deferred.

    Args:
        notes: of the sink.
    """

    def __init__(self, notes: SecondarySinkNotes) -> None:
        self._notes = notes
        self._end = self._next_check = 0.0
        self._away = False

    def begin_batch(self) -> None:
        """Begin the seconds that the batch has for the sink."""
        self._end = time.monotonic() + LIMIT_SECONDS

    def attempts(self) -> Retrying:
        """Return the attempts until the seconds of the batch are over."""
        return _attempts_until(self._end, longest=1.0)

    def is_away(self) -> bool:
        """Whether a task of this or another process has noted that the sink is away."""
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_SECONDS
            # A cluster that does not answer changes nothing: what was known last holds until it does.
            with contextlib.suppress(HeadraceError):
                self._away = self._notes.why_away() is not None
        return self._away

    def note_failure(self, error: HeadraceError) -> None:
        """Note that the sink is away: no task waits for it until it has taken a document.

        Raises:
            HeadraceError: the error, where it is not the sink's.
        """
        if not is_from_sink(error):
            raise error
        # At once for this task; the note below is for the tasks of other processes.
        self._away, self._next_check = True, time.monotonic() + _CHECK_SECONDS
        for attempt in retrying():
            with attempt:
                self._notes.note_away(str(error))

    def defer(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:
        """Store keys; see `DeferredKeys.add`."""
        batches = list(batches)
        for attempt in retrying():
            with attempt:
                self._notes.deferred.add(generation, batches, version)


def _attempts_until(end: float, longest: float, ending: threading.Event | None = None) -> Retrying:
    """Return attempts that end with the sink's first failure after `end`; others are repeated for ever."""
    ended = ending or threading.Event()

    def is_retryable(error: BaseException) -> bool:
        if not isinstance(error, HeadraceError) or error.retry is not Retry.BACK_OFF or ended.is_set():
            return False
        return not (is_from_sink(error) and time.monotonic() > end)

    return retrying(longest=longest, ending=ended).copy(retry=retry_if_exception(is_retryable))
