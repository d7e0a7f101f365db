"""How is a whole index compared with the database, without the database sending the documents?

There and back. There: the digests of a range of keys, and the index's documents with these ids. Back: the
ids of the index, and which of them have a document. What differs is looked at again until it is clear.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from headrace.assembly.digests import Digest, DigestRanges, Presence, digest_of
from headrace.pipeline.verification.recheck import Recheck, Verdict
from headrace.pipeline.verification.repair import Repair, is_fenced, why_not
from headrace.pipeline.verification.report import Report
from headrace.pipeline.verification.sides import IndexDocuments
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import count, ids, refresh

_RANGE = 1000
_REQUEST_BYTES = 8 << 20
_REQUEST_DOCUMENTS = 500
_UNKNOWN_BYTES = 64 << 10
"""What a document counts for whose size nobody has told."""


class Comparison:
    """Compares one index, and repairs it where `repair` is given. Used from one thread.

    Memory holds a range of digests and, of the documents that differ, as many as `_REQUEST_BYTES` allows.
    """

    def __init__(
        self,
        report: Report,
        index: IndexDocuments,
        settling: Recheck,
        repair: Repair | None,
    ) -> None:
        self._report = report
        self._index = index
        self._settling = settling
        self._repair = repair
        self._suspects: dict[str, int] = {}
        self._told: set[Verdict] = set()

    def documents(self, ranges: DigestRanges, advance: Callable[[int], None]) -> None:
        """Compare every document of the database with the index's; the next range is read meanwhile.

        Raises:
            HeadraceError: what either side does not bear.
        """
        for found in _read_ahead(ranges):
            for portion in _portions(found):
                self._compare(portion)
            self._report.documents += sum(one.digest is not None for one in found)
            advance(self._report.documents)
        self._settle()

    def extras(self, presence: Presence, found: Iterable[str], advance: Callable[[int], None]) -> None:
        """Look for every id of the index in the database; `documents` has told of rows that cannot be read.

        Raises:
            HeadraceError: as `documents`.
        """
        seen, sample = 0, self._report.sample
        self._told = {Verdict.UNREADABLE}
        for page in _pages(found, _RANGE):
            seen += len(page)
            chosen = page if sample is None else [one for one in page if sample.holds(one)]
            stamps = presence.read(chosen).stamps
            for one in chosen:
                if one not in stamps:
                    self._suspect(one, _UNKNOWN_BYTES)
            self._report.ids += len(chosen)
            advance(seen)
        self._settle()

    def _compare(self, portion: list[Digest]) -> None:
        there = self._index.read([one.id for one in portion])
        for one in portion:
            held = there.get(one.id)
            if not one.readable:
                same = False
            elif held is None or one.digest is None:
                same = held is None and one.digest is None
            else:
                same = not self._settling.contents or digest_of(held.source) == one.digest
            if not same:
                self._suspect(one.id, one.size)

    def _suspect(self, id_: str, size: int) -> None:
        self._suspects[id_] = size
        if len(self._suspects) >= _REQUEST_DOCUMENTS or sum(self._suspects.values()) >= _REQUEST_BYTES:
            self._settle()

    def _settle(self) -> None:
        suspects, self._suspects = list(self._suspects), {}
        if not suspects:
            return
        wrong = []
        for one in self._settling.settle(suspects):
            if one.verdict not in self._told:
                self._report.found(one)
            if one.verdict.is_drift:
                wrong.append(one.id)
        if wrong and self._repair is not None:
            self._rebuild(self._repair, wrong)

    def _rebuild(self, repair: Repair, wrong: list[str]) -> None:
        refused = repair.rebuild(wrong)
        for one in self._settling.settle(wrong):
            if one.verdict in (Verdict.RIGHT, Verdict.CHANGING):  # the stream writes it again and again
                self._report.repaired += 1
            else:
                why = refused.get(one.id)
                self._report.not_repaired(one.id, why_not(one, why), fenced=why is None and is_fenced(one))


def compare(
    comparison: Comparison,
    ranges: DigestRanges,
    presence: Presence,
    client: Client,
    report: Report,
    *,
    reporter: Reporter,
) -> None:
    """Both ways; `report` is filled.

    Raises:
        HeadraceError: what either side does not bear.
    """
    began = time.monotonic()
    refresh(client, report.generation)
    total = count(client, report.generation)
    sample = report.sample
    expected = total if sample is None else round(total * sample.percent / 100)
    with reporter.progress(f"{report.alias}: documents", expected) as advance:
        comparison.documents(ranges, advance)
    refresh(client, report.generation)
    with reporter.progress(f"{report.alias}: ids", total) as advance:
        comparison.extras(presence, ids(client, report.generation), advance)
    report.seconds = time.monotonic() - began


def _read_ahead(ranges: DigestRanges) -> Iterator[list[Digest]]:
    """All ranges; the next one is read while one is compared, where no function of the user's is called."""
    if ranges.transformed:
        yield from iter(lambda: ranges.next(_RANGE), [])
        return
    with ThreadPoolExecutor(1, "headrace digests") as reading:
        coming = reading.submit(ranges.next, _RANGE)
        while found := coming.result():
            coming = reading.submit(ranges.next, _RANGE)
            yield found


def _portions(found: list[Digest]) -> Iterator[list[Digest]]:
    """As many at a time as one request may ask for; a larger document goes alone."""
    portion: list[Digest] = []
    size = 0
    for one in found:
        if portion and (size + one.size > _REQUEST_BYTES or len(portion) >= _REQUEST_DOCUMENTS):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += one.size
    if portion:
        yield portion


def _pages(found: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(found)
    while page := list(islice(iterator, size)):
        yield page
