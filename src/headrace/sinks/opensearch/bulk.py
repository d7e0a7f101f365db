"""Turn document operations into bulk requests, read their answers, and adapt the requests' size. No IO.

A document's bytes are put between the lines unchanged and never parsed. How the server answers in each case
was measured on OpenSearch 3.8; `Outcome` lists the cases.
"""

from __future__ import annotations

import enum
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.changes import DocumentOperation
from headrace.model.chunks import chunked
from headrace.sinks.base import Rejection, WriteResult
from headrace.sinks.opensearch.failures import describe, describe_without_request, describe_without_values

_MAX_ID_BYTES = 512
"""The server refuses a whole request with a longer id, so such a document is never sent."""

MAX_VERSION = 2**63 - 1

_OF_INDEX = re.compile(r"[a-z_]*block_exception|index_closed_exception|unavailable_shards_exception")
"""Types: the index is blocked or closed, or has lost a shard. No document is the cause."""
_OF_INDEX_TOO = re.compile(
    r"no write index is defined for alias"
    r"|Alias \[[^]]*\] has index routing|index/alias \[[^]]*\] provided with routing"
    r"|pipeline with id \[[^]]*\] does not exist|Pipeline processor configured for non-existent pipeline"
    r"|[Nn]umber of documents in (?:shard|the shard|the index) "
)
"""Beginnings of reasons that say so of an index's aliases, its pipeline, or a shard that is full."""

_OF_MODEL = re.compile(r'Error from remote service: \{"message": ?null\}')
"""A reason of a model's service that is overloaded, with status 400; what else it says may be of the text."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode

SMALLEST = 64 * 1024
"""Lower limit (bytes); smaller requests would only cost more."""

_STEPS = 32
"""Number of accepted requests after which the size has grown from 0 to the maximum."""


@dataclass(frozen=True, slots=True)
class Item:
    """One rendered operation: `lines` is the action line and, for an upsert, the document's line."""

    index: str
    id: str
    delete: bool
    lines: bytes


class Outcome(enum.Enum):
    """The meaning of one item's status."""

    DONE = "done"
    FENCED = "fenced"
    RETRY = "retry"
    FAILED = "failed"
    """The server failed at it: for now, or whenever this document comes. It is sent again for a while."""
    BLOCKED = "blocked"
    """The index takes nothing now, or its pipeline, shards or permissions are not as they must be."""
    REJECTED = "rejected"
    GONE = "gone"
    """The target index or its write alias does not exist."""


_BUSY = (408, 429, 503)
_DEPENDENCY_FAILED = 424
"""Of a service that a processor asks, where what that one asks has failed."""

VERSION_CONFLICT = "version_conflict_engine_exception"
"""Type of a refusal that says so; status 409 alone may be of a processor whose model is not ready."""

_BY_TYPE = {
    "index_not_found_exception": Outcome.GONE,
    # The index has this version, or a later one: a repeated batch, or an older change.
    VERSION_CONFLICT: Outcome.FENCED,
    # With status 500: an ingest pipeline of the user refuses the document.
    "fail_processor_exception": Outcome.REJECTED,
    # With status 400 in Elasticsearch, although no request is the cause.
    "task_cancelled_exception": Outcome.RETRY,
}
"""Types whose status says something else, or less."""


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """What an answer settles, and what must be sent again with the first reason why.

    Attributes:
        failed: of what must be sent again, the items that the server failed at.
    """

    settled: WriteResult
    again: tuple[Item, ...] = ()
    reason: str = ""
    failed: tuple[Rejection, ...] = ()
    fatal: tuple[Outcome, Item, str] | None = None


def invalid_reason(operation: DocumentOperation) -> str | None:
    """Explain why the server would refuse a whole request that holds `operation`, or return None."""
    if not 0 <= operation.version <= MAX_VERSION:
        return f"the version {operation.version} is outside of 0 to {MAX_VERSION}"
    return invalid_id(operation.id)


def invalid_id(id_: str) -> str | None:
    """Explain why no document can have this id, and a request that asks for it fails; else return None."""
    if not id_:
        return "the document id is empty"
    try:
        length = len(id_.encode())
    except UnicodeEncodeError:
        return "the document id is not valid Unicode"
    if length > _MAX_ID_BYTES:
        return f"the document id has {length} bytes, OpenSearch takes at most {_MAX_ID_BYTES}"
    return None


def render(operation: DocumentOperation, target: str) -> Item:
    """Render `operation` as lines of a bulk request on the index or alias `target`.

    Line feeds in a document are replaced by spaces: in JSON they stand only between tokens (a `json` column
    keeps its white space), and in a bulk request they would end the line.
    """
    delete = operation.body is None
    routing = "" if operation.routing is None else f',"routing":{_quoted(operation.routing)}'
    # `gte`: a batch that is repeated may write the same version again.
    action = (
        f'{{"{"delete" if delete else "index"}":{{"_index":{_quoted(target)},"_id":{_quoted(operation.id)},'
        f'"version":{operation.version},"version_type":"external_gte"{routing}}}}}\n'
    ).encode()
    body = operation.body
    if body is None:
        return Item(operation.index, operation.id, delete, action)
    if b"\n" in body:
        # A line feed ends a line of the bulk; inside a JSON text it is always escaped.
        body = body.replace(b"\n", b" ")
    return Item(operation.index, operation.id, delete, b"".join((action, body, b"\n")))


def chunks(items: Iterable[Item], max_bytes: Callable[[], int], max_count: int) -> Iterator[list[Item]]:
    """Split `items` into the chunks of requests, as `chunked`."""
    return chunked(items, lambda item: len(item.lines), max_bytes, max_count)


def body(chunk: Sequence[Item]) -> bytes:
    """Join the lines of a chunk into a request's body."""
    return b"".join([item.lines for item in chunk])


def judge(data: bytes, chunk: Sequence[Item]) -> ItemVerdict:
    """Read the answer with status 200 to `chunk`.

    Raises:
        ValueError: the answer does not have one entry for each item; what happened is unknown.
    """
    # Nearly always; then no JSON is parsed. With our filter_path an answer begins with `errors`.
    if data.startswith(b'{"errors":false'):
        return ItemVerdict(_accepted_result(chunk))
    items = json.loads(data)["items"]
    # Items have no id of their own in the answer: they are known by their order.
    if len(items) != len(chunk):
        raise ValueError(f"{len(items)} answers to {len(chunk)} operations")
    return _verdict([(item, *_status(answer)) for item, answer in zip(chunk, items, strict=True)])


def classify(status: int, error: Any, *, delete: bool) -> Outcome:
    """Classify one item's status and error."""
    # A document that is not there is as gone as the delete wants it.
    if status < 300 or (status == 404 and delete and not error):  # noqa: PLR2004
        return Outcome.DONE
    if (known := _of_error(error)) is not None:
        return known
    # A delete has no content, and no document is why something is forbidden, not found or not ready.
    if status in (401, 403, 404, 409) or (status == 400 and delete):  # noqa: PLR2004
        return Outcome.BLOCKED
    if status in (*_BUSY, _DEPENDENCY_FAILED) or status >= 500:  # noqa: PLR2004
        return Outcome.RETRY if status in _BUSY else Outcome.FAILED
    return Outcome.REJECTED


def _of_error(error: Any) -> Outcome | None:
    """Return what an error says whatever the status is; None where that decides."""
    if not isinstance(error, dict):
        return None
    kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
    if _OF_MODEL.match(reason):
        return Outcome.FAILED
    # Such an index takes no document at all.
    is_of_index = _OF_INDEX.fullmatch(kind) or _OF_INDEX_TOO.match(reason)
    return _BY_TYPE.get(kind, Outcome.BLOCKED if is_of_index else None)


def _names_own_index(item: Item, error: dict[str, Any]) -> bool:
    """Tell whether an error names the target of an item, or the generation that its name begins with."""
    return f'"_index":"{error.get("index", "")}'.encode() in item.lines


def deleted_from(data: bytes, index: str) -> bool:
    """Tell whether a delete was done in `index` itself, not in one behind an alias of that name."""
    if f'"_index":"{index}"'.encode() not in data:
        return False
    deletes = (item.get("delete", {}) for item in json.loads(data)["items"])
    return any(delete.get("_index") == index and "error" not in delete for delete in deletes)


def rejected(refused: Item | DocumentOperation, reason: str, public: str = "") -> WriteResult:
    """Build the result for what will never be accepted; the reasons as in `Rejection`."""
    return WriteResult(rejected=(Rejection(refused.index, refused.id, reason, public),))


def _status(answer: dict[str, Any]) -> tuple[int, Any]:
    [inner] = answer.values()
    return inner["status"], inner.get("error")


def _verdict(answers: list[tuple[Item, int, Any]]) -> ItemVerdict:
    done: list[Item] = []
    again: list[Item] = []
    refused: list[Rejection] = []
    failed: list[Rejection] = []
    fenced, reason, fatal = 0, "", None
    for item, status, error in answers:
        outcome = classify(status, error, delete=item.delete)
        # An ingest pipeline has sent the document to another index: its own is not gone.
        if outcome is Outcome.GONE and not _names_own_index(item, error):
            outcome = Outcome.BLOCKED
        if outcome is Outcome.DONE:
            done.append(item)
        elif outcome is Outcome.FENCED:
            fenced += 1
        elif outcome is Outcome.RETRY:
            again.append(item)
            reason = reason or describe_without_request(error)
        elif outcome is Outcome.FAILED:
            again.append(item)
            failed.append(_rejection(item, error))
        elif outcome is Outcome.REJECTED:
            refused.append(_rejection(item, error))
        else:
            fatal = fatal or (outcome, item, describe_without_request(error))
    settled = _accepted_result(done) + WriteResult(fenced=fenced, rejected=tuple(refused))
    return ItemVerdict(settled, tuple(again), reason, tuple(failed), fatal)


def _rejection(item: Item, error: Any) -> Rejection:
    return Rejection(item.index, item.id, describe(error), describe_without_values(error))


def _accepted_result(items: Sequence[Item]) -> WriteResult:
    deleted = sum(item.delete for item in items)
    return WriteResult(
        upserted=len(items) - deleted, deleted=deleted, bytes=sum(len(item.lines) for item in items)
    )


class BulkSize:
    """The current limit of a request (bytes before compression); shared by the senders of one writer.

    Additive increase, multiplicative decrease: a refusal of a whole request halves the size, each accepted
    request lets it grow a little. A request that was too large for the server (413) also sets a lasting
    ceiling.

    Args:
        most: the upper limit.
    """

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._step = max(1, most // _STEPS)
        self._floor = min(most, SMALLEST)
        self._ceiling = most
        self._bytes = most

    @property
    def bytes(self) -> int:
        """Return the current limit of one request."""
        return self._bytes

    def overloaded(self, sent: int) -> None:
        """Halve the size after a request of `sent` bytes was refused because the cluster is overloaded.

        A request that was cut before the last halving is ignored: it does not tell anything about the current
        size.
        """
        with self._lock:
            # Several senders are refused at once for one overload, which must count once.
            if sent <= self._bytes:
                # Half of what was sent, not of the limit: the request may have been smaller.
                self._bytes = max(self._floor, sent // 2)

    def too_large(self, sent: int) -> None:
        """Lower the ceiling after a request of several documents was too large for the server.

        Args:
            sent: the request's size (bytes).
        """
        with self._lock:
            self._ceiling = max(self._floor, min(self._ceiling, sent // 2))
            self._bytes = min(self._bytes, self._ceiling)

    def accepted(self, sent: int) -> None:
        """Let the size grow after an accepted request, if that was about as large as the limit."""
        with self._lock:
            # A small request says nothing about whether a large one is taken.
            if sent * 2 >= self._bytes:
                self._bytes = min(self._ceiling, self._bytes + self._step)
