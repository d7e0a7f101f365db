"""Compare a whole index with the database by digests, so that the database sends no documents.

The first pass reads the digests of a range of keys, and the index's documents with these ids. The second
pass reads the ids of the index, and checks which ones have a document. Documents that differ are checked
again until the verdict is certain.
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
"""The assumed size of a document whose size is unknown."""


class Comparison:
    """Compares one index, and repairs it where `repair` is given; used from one thread.

    Memory holds a range of digests and, of the documents that differ, as many as `_REQUEST_BYTES` allows.
    """

    def __init__(
        self,
        report: Report,
        index: IndexDocuments,
        recheck: Recheck,
        repair: Repair | None,
    ) -> None:
        self._report = report
        self._index = index
        self._recheck = recheck
        self._repair = repair
        self._suspects: dict[str, int] = {}
        self._reported: set[Verdict] = set()

    def documents(self, ranges: DigestRanges, advance: Callable[[int], None]) -> None:
        """Compare every document of the database with the index's, and read the next range meanwhile.

        Raises:
            HeadraceError: an error of either server.
        """
        for digests in _read_ahead(ranges):
            for portion in _portions(digests):
                self._compare(portion)
            self._report.documents += sum(digest.digest is not None for digest in digests)
            advance(self._report.documents)
        self._recheck_suspects()

    def extras(self, presence: Presence, index_ids: Iterable[str], advance: Callable[[int], None]) -> None:
        """Look up every id of the index in the database; `documents` has reported unreadable rows already.

        Raises:
            HeadraceError: as for `documents`.
        """
        seen, sample = 0, self._report.sample
        self._reported = {Verdict.UNREADABLE}
        for page in _pages(index_ids, _RANGE):
            seen += len(page)
            chosen = page if sample is None else [id_ for id_ in page if sample.holds(id_)]
            stamps = presence.read(chosen).stamps
            for id_ in chosen:
                if id_ not in stamps:
                    self._suspect(id_, _UNKNOWN_BYTES)
            self._report.ids += len(chosen)
            advance(seen)
        self._recheck_suspects()

    def _compare(self, portion: list[Digest]) -> None:
        indexed = self._index.read([digest.id for digest in portion])
        for digest in portion:
            stored = indexed.get(digest.id)
            if not digest.readable:
                same = False
            elif stored is None or digest.digest is None:
                same = stored is None and digest.digest is None
            else:
                same = not self._recheck.contents or digest_of(stored.source) == digest.digest
            if not same:
                self._suspect(digest.id, digest.size)

    def _suspect(self, id_: str, size: int) -> None:
        self._suspects[id_] = size
        if len(self._suspects) >= _REQUEST_DOCUMENTS or sum(self._suspects.values()) >= _REQUEST_BYTES:
            self._recheck_suspects()

    def _recheck_suspects(self) -> None:
        suspects, self._suspects = list(self._suspects), {}
        if not suspects:
            return
        wrong = []
        for finding in self._recheck.run(suspects):
            if finding.verdict not in self._reported:
                self._report.count_finding(finding)
            if finding.verdict.is_drift:
                wrong.append(finding.id)
        if wrong and self._repair is not None:
            self._rebuild(self._repair, wrong)

    def _rebuild(self, repair: Repair, wrong: list[str]) -> None:
        refused = repair.rebuild(wrong)
        for finding in self._recheck.run(wrong):
            if finding.verdict in (
                Verdict.RIGHT,
                Verdict.CHANGING,
            ):  # a changing document is written by the stream anyway
                self._report.repaired += 1
            else:
                reason = refused.get(finding.id)
                self._report.count_unrepaired(
                    finding.id, why_not(finding, reason), fenced=reason is None and is_fenced(finding)
                )


def compare(
    comparison: Comparison,
    ranges: DigestRanges,
    presence: Presence,
    client: Client,
    report: Report,
    *,
    reporter: Reporter,
) -> None:
    """Compare in both directions, and put the results into `report`.

    Raises:
        HeadraceError: an error of either server.
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
    """Yield all ranges; read the next one in a thread, unless a transform of the user runs."""
    if ranges.transformed:
        yield from iter(lambda: ranges.next(_RANGE), [])
        return
    with ThreadPoolExecutor(1, "headrace digests") as reading:
        next_range = reading.submit(ranges.next, _RANGE)
        while digests := next_range.result():
            next_range = reading.submit(ranges.next, _RANGE)
            yield digests


def _portions(digests: list[Digest]) -> Iterator[list[Digest]]:
    """Group digests into requests; a larger document has a request of its own."""
    portion: list[Digest] = []
    size = 0
    for digest in digests:
        if portion and (size + digest.size > _REQUEST_BYTES or len(portion) >= _REQUEST_DOCUMENTS):
            yield portion
            portion, size = [], 0
        portion.append(digest)
        size += digest.size
    if portion:
        yield portion


def _pages(ids_: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(ids_)
    while page := list(islice(iterator, size)):
        yield page
