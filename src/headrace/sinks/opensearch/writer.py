"""Write document operations to OpenSearch by bulk requests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Self

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from headrace.errors import HeadraceError, Kind, Retry, as_locked, error_of
from headrace.model.changes import DocumentOperation
from headrace.model.units import quantity
from headrace.sinks.activity import Activity, ReportTo
from headrace.sinks.age import TimeLimit, TooOldError
from headrace.sinks.base import DocumentWriter, WriteResult
from headrace.sinks.opensearch import bulk, failures
from headrace.sinks.opensearch.bulk import BulkSize, Item, ItemVerdict, Outcome
from headrace.sinks.opensearch.client import Answer, Client, path

_NDJSON = "application/x-ndjson"
_UNANSWERED = (502, 504, 520, 524)
"""Statuses of a proxy that lost the node; whether the bulk was applied is unknown."""
_WRONG, _TOO_LARGE = 400, 413
_OF_FIREWALLS = (_WRONG, 403, 406)
"""Statuses of a page by which a firewall refuses a request whose documents look bad to it."""
_STALE_SECONDS = 300.0
"""After this time the same bytes are not sent again."""
_OLDEST_SECONDS = 1800.0
"""Older documents are not sent at all, see `TimeLimit`. Three chunks may wait for one another, so only a
process that was suspended has them."""
_GENTLE_BYTES = 2_000_000
_OVERLOADED = (429, 503)
"""Statuses of a whole request that was refused because of overload; a smaller one may be accepted."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How bulks are cut and sent.

    Attributes:
        max_bytes: of one request before compression; 5 MB is where throughput stops growing. A cluster
            that refuses requests gets smaller ones for a while, see `BulkSize`.
        max_count: operations of one request.
        max_document_bytes: a larger document is rejected without being sent: it could take all memory of the
            cluster's node, again with each attempt.
        senders: requests under way at once; two keep a small node busy.
        busy_seconds: how long 429 and 5xx are retried with the same bytes before `write` gives up, and its
            caller assembles the documents again.
        pipeline: an ingest pipeline of the cluster.
        require_alias: targets must be aliases, so that a bulk on a dropped generation fails instead of
            creating an index with guessed types.
        report: where the writer's activity is reported.
    """

    max_bytes: int = 5_000_000
    max_count: int = 5_000
    max_document_bytes: int = 20 * 1024 * 1024
    senders: int = 2
    busy_seconds: float = 60.0
    pipeline: str | None = None
    require_alias: bool = True
    report: ReportTo | None = None

    def gentle(self) -> Self:
        """Return options for a writer beside others that have priority.

        A small node has a thread for each processor: one request at a time, of moderate size, leaves the
        others capacity.
        """
        return replace(self, senders=1, max_bytes=min(self.max_bytes, _GENTLE_BYTES))


@dataclass(slots=True)
class _Delivery:
    """A chunk under way: the parts still to be sent, the age of its documents, and the result of the rest."""

    parts: deque[list[Item]]
    age: TimeLimit
    settled: WriteResult = field(default_factory=WriteResult)


class OpenSearchWriter(DocumentWriter):
    """Writes by bulk requests; versions fence older operations, so senders need no order among them.

    Two operations of one id may be in two requests at once: whichever arrives last, the newer one stays.
    Versions cannot order two operations on the same id with the same version and different content: the
    caller never passes both to one `write`.

    Args:
        client: stays the caller's: `close` does not close it.
        targets: logical index → the alias (or, without `require_alias`, the index) that is written.
        options: by default `WriterOptions()`.
    """

    def __init__(
        self, client: Client, targets: Mapping[str, str], options: WriterOptions | None = None
    ) -> None:
        self._client = client
        self._targets = dict(targets)
        self._options = options or WriterOptions()
        self._bulk = path("_bulk", query={"timeout": client.server_timeout, **_query(self._options)})
        self._size = BulkSize(self._options.max_bytes)
        self._activity = Activity(self._options.report, self._size.bytes, client.endpoint.timeout)
        self._senders = ThreadPoolExecutor(self._options.senders, "headrace-bulk")

    def write(self, operations: Iterable[DocumentOperation]) -> WriteResult:
        """Write all operations.

        Memory is bounded by (senders + 1) times `max_bytes` and the largest document.

        Raises:
            HeadraceError: SINK_UNREACHABLE (a bulk got no answer), SINK_BUSY (overloaded for
                `busy_seconds`), AUTHENTICATION, SINK_REJECTED (a target does not exist), LOCKED (an index
                takes nothing now, the user may not write it, or the cluster has failed at documents of it for
                `busy_seconds`).
        """
        refused: list[WriteResult] = []
        items = self._rendered(operations, refused)
        total = WriteResult()
        under_way: deque[Future[WriteResult]] = deque()
        try:
            # The first item of a chunk is taken while the chunk before it is asked for.
            asked_for = deque([TimeLimit(_OLDEST_SECONDS)], maxlen=2)
            for chunk in self._chunks(items):
                # Bounds the memory: one more chunk is rendered while the others are under way.
                if len(under_way) >= self._options.senders:
                    total += under_way.popleft().result()
                under_way.append(self._senders.submit(self._deliver, chunk, asked_for[0]))
                asked_for.append(TimeLimit(_OLDEST_SECONDS))
            while under_way:
                total += under_way.popleft().result()
        finally:
            # Also after an error: nothing may be written once the caller goes on, and perhaps repeats the
            # batch.
            wait(under_way)
        return sum(refused, total)

    def close(self) -> None:
        """Stop the senders."""
        self._senders.shutdown()
        self._activity.close()

    def _rendered(
        self, operations: Iterable[DocumentOperation], refused: list[WriteResult]
    ) -> Iterator[Item]:
        for operation in operations:
            reason = bulk.invalid_reason(operation) or _too_long(operation, self._options.max_document_bytes)
            if reason is None:
                yield bulk.render(operation, self._targets[operation.index])
            elif operation.body is None:
                refused.append(WriteResult(deleted=1))  # no document can exist under such an id
            else:
                refused.append(bulk.rejected(operation, reason))

    def _deliver(self, chunk: list[Item], age: TimeLimit) -> WriteResult:
        """Send `chunk`, in as many parts and attempts as needed; 429 and 5xx are retried.

        Gives up after `busy_seconds` without progress, and where it takes too long in all.

        Args:
            age: since before the first document of the chunk was given.
        """
        delivery = _Delivery(deque([chunk]), age)
        stale_at = time.monotonic() + _STALE_SECONDS
        while delivery.parts:
            # The caller reads the documents again: by now their rows may have changed.
            if time.monotonic() > stale_at:
                index, url = delivery.parts[0][0].index, self._client.endpoint.urls[0]
                raise HeadraceError(
                    Kind.SINK_BUSY,
                    f"OpenSearch at {url} takes documents of index {index} too slowly: what is left was read "
                    f"{_STALE_SECONDS:.0f} s ago, and is read again",
                    "Look at the cluster's health, its disk watermarks and its write queue.",
                )
            for attempt in Retrying(
                retry=retry_if_exception(_is_busy),
                wait=wait_random_exponential(multiplier=0.1, max=5),
                stop=stop_after_delay(self._options.busy_seconds),
                retry_error_callback=_give_up,
            ):
                # Each attempt sends the next part; what an attempt has settled is not sent again.
                with attempt:
                    self._send(delivery)
        return delivery.settled

    def _send(self, delivery: _Delivery) -> None:
        """Send the next part; what is not settled stays in `delivery`, cut as the answer demands.

        Raises:
            HeadraceError: SINK_BUSY, after which it may be called again; any error that ends `write`.
        """
        part = delivery.parts[0]
        data = bulk.body(part)
        delivery.age.check()
        try:
            with self._activity.request():
                answer = self._client.exchange("POST", self._bulk, data, _NDJSON)
            # Nothing of it was applied, so its parts can be sent alone.
            if _is_of_an_item(self._client, answer):
                self._halve(delivery, answer, len(data))
                return
            # Cut before the answer is judged: the error below leads to an attempt that sends smaller parts.
            if answer.status in _OVERLOADED:
                self._size.overloaded(len(data))
                delivery.parts.popleft()
                delivery.parts.extendleft(reversed(list(self._chunks(part))))
            verdict = _verdict(self._client, answer, part)
            # Before the result counts: a delete may just have made an index of the alias's name.
            self._refuse_strays(answer, part)
            delivery.parts.popleft()
            delivery.settled += verdict.settled
            if verdict.again:
                delivery.parts.appendleft(list(verdict.again))
                self._size.overloaded(len(data))
                raise _untaken(verdict, answer.place)
        except HeadraceError as error:
            cause = self._name_large_document(error, part, len(data))
            if cause.retry is Retry.BACK_OFF:
                self._activity.refused(cause, self._size.bytes)
            if cause is error:
                raise
            raise cause from error
        self._size.accepted(len(data))
        self._activity.accepted(self._size.bytes)

    def _name_large_document(self, error: HeadraceError, part: list[Item], sent: int) -> HeadraceError:
        """Name the document in the error where the request was one large document."""
        # A document that ends a node comes as a connection that breaks, one that is more than the node
        # takes at once as a full queue: again with each attempt.
        if error.retry is not Retry.BACK_OFF or len(part) > 1 or sent <= self._options.max_bytes:
            return error
        item = part[0]
        where = f"to one document of {sent >> 20} MiB (index {item.index}"
        return HeadraceError(
            error.kind,
            f"{error.cause}: the request was {where})",
            "If the document is too large for the cluster, put a `limit` on its longest list, or set "
            "max_document_bytes of the sink below its size: it is refused then, as on_error says. "
            + error.remedy,
            detail=f"{error.cause}: the request was {where}, id {item.id})",
        ).concerning(units=error.units)

    def _halve(self, delivery: _Delivery, answer: Answer, sent: int) -> None:
        """Halve a part that the server refuses as a whole, until the cause stands alone.

        Raises:
            HeadraceError: SINK_BUSY, where a firewall refuses a single document: its index waits, then.
        """
        part, is_too_large = delivery.parts[0], answer.status == _TOO_LARGE
        if len(part) == 1 and not is_too_large and answer.is_of_gateway:
            raise _kept_out(part[0], answer)
        delivery.parts.popleft()
        if len(part) > 1:
            if is_too_large:
                self._size.too_large(sent)
            middle = len(part) // 2
            delivery.parts.extendleft((part[middle:], part[:middle]))
        elif is_too_large:
            delivery.settled += bulk.rejected(part[0], _too_large(sent))
        else:
            cause = failures.reason(answer.data), failures.reason_without_values(answer.data)
            delivery.settled += bulk.rejected(part[0], *cause)

    def _chunks(self, items: Iterable[Item]) -> Iterator[list[Item]]:
        return bulk.chunks(items, lambda: self._size.bytes, self._options.max_count)

    def _refuse_strays(self, answer: Answer, part: list[Item]) -> None:
        """Notice a delete that created an index: `require_alias` applies to upserts only."""
        if not self._options.require_alias or not any(item.delete for item in part):
            return
        for target in self._targets.values():
            if bulk.deleted_from(answer.data, target):
                # An alias cannot be deleted this way: if it is back by now, nothing happens.
                self._client.call("DELETE", path(target), allow=(400, 404))
                item = next(item for item in part if item.delete)
                raise _fatal(Outcome.GONE, item, f"the alias {target} is missing", answer.place)


def _query(options: WriterOptions) -> dict[str, str | int]:
    # The `_index` of a delete tells whether it went to an alias or made an index of that name.
    query: dict[str, str | int] = {"filter_path": "errors,items.*.status,items.*.error,items.delete._index"}
    if options.require_alias:
        query["require_alias"] = "true"
    if options.pipeline:
        query["pipeline"] = options.pipeline
    return query


def _too_long(operation: DocumentOperation, most: int) -> str | None:
    """Explain why a document is not sent, or return None."""
    size = 0 if operation.body is None else len(operation.body)
    if size <= most:
        return None
    return (
        f"it has {size:,} bytes, more than max_document_bytes of the sink allows ({most:,}); "
        "put a `limit` on its longest list, or raise it where the cluster has the memory"
    )


def _too_large(sent: int) -> str:
    """Explain status 413, for which the cluster gives no reason."""
    return (
        f"its request has {sent:,} bytes, more than the cluster (http.max_content_length) or a proxy before "
        "it takes"
    )


def _is_of_an_item(client: Client, answer: Answer) -> bool:
    """Tell whether a single item can be why the whole request was refused."""
    if answer.status == _TOO_LARGE or (answer.status == _WRONG and not failures.says_nothing(answer.data)):
        return True
    return answer.status in _OF_FIREWALLS and not answer.is_readable and client.reaches_cluster()


def _kept_out(item: Item, answer: Answer) -> HeadraceError:
    why = failures.reason(answer.data)
    return HeadraceError(
        Kind.SINK_BUSY,
        f"what stands before OpenSearch at {answer.place} refuses the document {item.id!r} of index "
        f"{item.index} (status {answer.status})" + (f": {why}" if why else ""),
        "Look at the rules of the proxy or firewall before the cluster: each document must pass them.",
    ).concerning(units=[item.index])


def _verdict(client: Client, answer: Answer, part: list[Item]) -> ItemVerdict:
    if answer.status in _UNANSWERED:
        raise HeadraceError(
            Kind.SINK_UNREACHABLE,
            f"no answer from OpenSearch behind {answer.place} (status {answer.status})",
            "Check the cluster's health and the proxy's time limit.",
        )
    if not answer.ok:
        raise client.failure(answer)
    try:
        verdict = bulk.judge(answer.data, part)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
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
            "Something else deleted it, or its alias; `headrace run` rebuilds it.",
        ).concerning(units=[item.index])
    return HeadraceError(
        Kind.LOCKED,
        f"OpenSearch at {place} takes no documents of index {item.index} now: {reason}",
        "Look at the index's blocks, shards and aliases, the user's permissions for it, the sink's pipeline "
        "with the services that it asks, and the cluster's disk watermarks.",
    ).concerning(units=[item.index])


def _untaken(verdict: ItemVerdict, place: str) -> HeadraceError:
    """Return the error of what is sent again; it names the indexes if the server has failed at all of it."""
    documents, failed = quantity(len(verdict.again), "document"), verdict.failed
    if len(failed) < len(verdict.again):
        return HeadraceError(
            Kind.SINK_BUSY,
            f"OpenSearch at {place} does not take {documents} of index {verdict.again[0].index} now: "
            f"{verdict.reason or failed[0].public}",
            "Look at the cluster's health, its disk watermarks and its write queue.",
        )
    first = failed[0]
    what = f"OpenSearch at {place} fails at {documents}, the first is {first.id!r} of index {first.index}"
    return HeadraceError(
        Kind.SINK_BUSY,
        f"{what}: {first.public}",
        "Look at the cluster's log, and at the sink's ingest pipeline: an error of a processor can be one "
        "document's alone. Once it is mended, or the row is another one, the index goes on by itself.",
        f"{what}: {first.reason}",
    ).concerning(units={item.index for item in failed})


def _give_up(state: RetryCallState) -> None:
    """Raise the last error of the attempts; what the server fails at waits alone, with its indexes.

    It does not count as refused: a server that fails says nothing against the document, and is perhaps
    mended tomorrow. With `skip` the document would be lost for that.
    """
    error = error_of(state)
    if not error.units:
        raise error
    raise as_locked(error, error.units) from error


def _is_busy(error: BaseException) -> bool:
    is_busy = isinstance(error, HeadraceError) and error.kind is Kind.SINK_BUSY
    return is_busy and not isinstance(error, TooOldError)
