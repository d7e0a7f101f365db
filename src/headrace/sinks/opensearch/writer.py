"""How do document operations become durable in OpenSearch?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from headrace.errors import HeadraceError, Kind
from headrace.model import DocumentOperation
from headrace.sinks.contract import DocumentWriter, WriteResult
from headrace.sinks.opensearch import bulk, failures
from headrace.sinks.opensearch.bulk import Item, Outcome, Verdict
from headrace.sinks.opensearch.client import Answer, Client, path

_NDJSON = "application/x-ndjson"
_UNANSWERED = (502, 504)
"""Statuses of a proxy that lost the node: whether the bulk was applied is unknown."""
_REFUSED_WHOLE = (400, 413)
"""Statuses that one item can bring upon all of a request; nothing of it was applied."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How bulks are cut and sent.

    Attributes:
        max_bytes: of one request before compression; 5 MB is where throughput stops growing.
        max_count: operations of one request.
        senders: requests under way at once; two keep a small node busy.
        busy_seconds: how long 429 and 503 are answered with patience before `write` gives up. Stays far
            below the index's gc_deletes: within it the same bytes are sent again.
        pipeline: an ingest pipeline of the cluster.
        require_alias: targets must be aliases, so that a bulk on a dropped generation fails instead of
            making an index with guessed types.
    """

    max_bytes: int = 5_000_000
    max_count: int = 5_000
    senders: int = 2
    busy_seconds: float = 60.0
    pipeline: str | None = None
    require_alias: bool = True


class OpenSearchWriter(DocumentWriter):
    """Writes by bulk requests; versions fence older operations, so senders need no order among them.

    The one thing that versions cannot order: two operations on the same id with the same version and
    different content. The caller never gives both within one `write`.

    Args:
        client: stays the caller's: `close` does not close it.
        targets: logical index → the alias (or, without `require_alias`, the index) that is written.
    """

    def __init__(
        self, client: Client, targets: Mapping[str, str], options: WriterOptions | None = None
    ) -> None:
        self._client = client
        self._targets = dict(targets)
        self._options = options or WriterOptions()
        self._bulk = path("_bulk", query=_query(self._options))
        self._senders = ThreadPoolExecutor(self._options.senders, "headrace-bulk")

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all; memory is bounded by (senders + 1) times `max_bytes` and the largest document.

        Raises:
            HeadraceError: SINK_UNREACHABLE (a bulk got no answer), SINK_BUSY (overloaded for
                `busy_seconds`), AUTHENTICATION, SINK_REJECTED (a target does not exist).
        """
        refused: list[WriteResult] = []
        items = self._rendered(operations, refused)
        total = WriteResult()
        under_way: deque[Future[WriteResult]] = deque()
        try:
            for chunk in bulk.chunks(items, self._options.max_bytes, self._options.max_count):
                if len(under_way) >= self._options.senders:
                    total += under_way.popleft().result()
                under_way.append(self._senders.submit(self._deliver, chunk))
            while under_way:
                total += under_way.popleft().result()
        finally:
            wait(under_way)
        return sum(refused, total)

    def close(self) -> None:
        """End the senders."""
        self._senders.shutdown()

    def _rendered(
        self, operations: Iterable[DocumentOperation], refused: list[WriteResult]
    ) -> Iterator[Item]:
        for operation in operations:
            reason = bulk.refusal(operation)
            if reason is None:
                yield bulk.render(operation, self._targets[operation.index])
            else:
                item = Item(operation.index, operation.id, operation.body is None, b"")
                refused.append(bulk.rejected(item, reason))

    def _deliver(self, chunk: list[Item]) -> WriteResult:
        """Send `chunk`; halve what the server refuses whole, until the guilty item stands alone."""
        total = WriteResult()
        parts = [chunk]
        while parts:
            settled, refused = self._settle(parts.pop())
            total += settled
            if refused:
                middle = len(refused) // 2
                parts += [refused[middle:], refused[:middle]]
        return total

    def _settle(self, part: list[Item]) -> tuple[WriteResult, list[Item]]:
        """Send `part`, and again what of it came back as busy; gives back what must be halved."""
        total = WriteResult()
        for attempt in Retrying(
            retry=retry_if_exception(_busy),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_delay(self._options.busy_seconds),
            reraise=True,
        ):
            with attempt:
                answer = self._client.exchange("POST", self._bulk, bulk.body(part), _NDJSON)
                if answer.status in _REFUSED_WHOLE:
                    if len(part) > 1:
                        return total, part
                    return total + bulk.rejected(part[0], failures.reason(answer.data)), []
                verdict = _verdict(answer, part)
                self._refuse_strays(answer, part)
                total += verdict.settled
                part = list(verdict.again)
                if part:
                    raise _overloaded(part, verdict.reason, answer.place)
        return total, []

    def _refuse_strays(self, answer: Answer, part: list[Item]) -> None:
        """Notice a delete that made an index of its target's name: `require_alias` binds upserts only."""
        if not self._options.require_alias or not any(item.delete for item in part):
            return
        for target in self._targets.values():
            if bulk.wrote_to(answer.data, target):
                # An alias cannot be deleted this way: if it is back by now, nothing happens.
                self._client.call("DELETE", path(target), allow=(400, 404))
                item = next(item for item in part if item.delete)
                raise _fatal(Outcome.GONE, item, f"the alias {target} is missing", answer.place)


def _query(options: WriterOptions) -> dict[str, str | int]:
    query: dict[str, str | int] = {"filter_path": "errors,items.*.status,items.*.error,items.delete._index"}
    if options.require_alias:
        query["require_alias"] = "true"
    if options.pipeline:
        query["pipeline"] = options.pipeline
    return query


def _verdict(answer: Answer, part: list[Item]) -> Verdict:
    if answer.status in _UNANSWERED:
        raise HeadraceError(
            Kind.SINK_UNREACHABLE,
            f"no answer from OpenSearch behind {answer.place} (status {answer.status})",
            "Check the cluster's health and the proxy's time limit.",
        )
    if not answer.ok:
        raise failures.from_status(answer.status, answer.data, answer.place)
    try:
        verdict = bulk.judge(answer.data, part)
    except (ValueError, KeyError) as error:
        raise HeadraceError(
            Kind.SINK_UNREACHABLE, f"the answer of OpenSearch at {answer.place} cannot be read: {error}"
        ) from error
    if verdict.fatal is not None:
        raise _fatal(*verdict.fatal, answer.place)
    return verdict


def _fatal(outcome: Outcome, item: Item, reason: str, place: str) -> HeadraceError:
    if outcome is Outcome.GONE:
        return HeadraceError(
            Kind.SINK_REJECTED,
            f"a generation of index {item.index} does not exist any more at {place}: {reason}",
            "Run headrace reindex for it; something else deleted it.",
        )
    return HeadraceError(
        Kind.AUTHENTICATION,
        f"OpenSearch at {place} does not allow this user to write index {item.index}: {reason}",
        "Give the user's role the permission to write to it.",
    )


def _overloaded(part: list[Item], reason: str, place: str) -> HeadraceError:
    return HeadraceError(
        Kind.SINK_BUSY,
        f"OpenSearch at {place} does not take {len(part)} documents of index {part[0].index} now: {reason}",
        "Look at the cluster's health, its disk watermarks and its write queue.",
    )


def _busy(error: BaseException) -> bool:
    return isinstance(error, HeadraceError) and error.kind is Kind.SINK_BUSY
