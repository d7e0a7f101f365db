"""Ask a running pipeline, from another process, to do something.

A control request asks it to rebuild an index, or to roll back to the generation before. It is a document
beside the pipeline's state, one for each index. The driver carries it out between two batches and deletes it;
where no pipeline runs, the next start does.

A position request asks it to note its position now: in a quiet time the applied position follows the server's
log only now and then. One that has been met, or for which no process waits any more, has no effect.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.state.key import StateKey
from headrace.state.system_index import entries_by_id

RequestKind = Literal["reindex", "rollback"]


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request for one index.

    Attributes:
        index: the logical index.
    kind: what to do.
        number: id of the request; the generation that it was carried out on stores it, so that it is not
            repeated after a kill.
        asked_at: ISO 8601.
        seq_no, primary_term: the document's version, so that only this request is deleted.
    """

    index: str
    kind: RequestKind
    number: str
    asked_at: str
    seq_no: int
    primary_term: int


class ControlRequests:
    """Reads and writes the control requests of one pipeline."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key

    def submit(self, index: str, kind: RequestKind) -> str:
        """Request something of the pipeline; returns the request's number.

        Replaces a pending request for the same index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        number = uuid.uuid4().hex
        body = {"kind": kind, "number": number, "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(self._key.meta_index, "_doc", self._id(index)), body)
        return number

    def read(self, indexes: Iterable[str]) -> list[ControlRequest]:
        """Read the pending requests for these indexes.

        Raises:
            HeadraceError: as `submit`.
        """
        by_id = {self._id(index): index for index in indexes}
        return [
            ControlRequest(
                by_id[document["_id"]],
                cast("RequestKind", document["_source"]["kind"]),
                document["_source"]["number"],
                document["_source"]["updated_at"],
                document["_seq_no"],
                document["_primary_term"],
            )
            for document in entries_by_id(self._client, self._key.meta_index, [*by_id])
            if document["_source"].get("kind") in ("reindex", "rollback")
        ]

    def done(self, request: ControlRequest) -> None:
        """Delete a request, unless another one has replaced it.

        Raises:
            HeadraceError: as `submit`.
        """
        seen: dict[str, str | int] = {"if_seq_no": request.seq_no, "if_primary_term": request.primary_term}
        target = path(self._key.meta_index, "_doc", self._id(request.index), query=seen)
        self._client.call("DELETE", target, allow=(404, 409))

    def forget(self, indexes: Iterable[str]) -> None:
        """Delete the requests for these indexes."""
        for index in indexes:
            self._client.call("DELETE", path(self._key.meta_index, "_doc", self._id(index)), allow=(404,))

    def _id(self, index: str) -> str:
        return f"{self._key.id}.request.{index}"


def position_request_document(key: StateKey) -> tuple[str, str, str]:
    """Return index, type and id of the request's document."""
    return key.meta_index, "_doc", f"{key.id}.position_request"


class PositionRequest:
    """The last position request to one pipeline.

    Two processes that wait overwrite each other's request: both repeat it while they wait.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._document = position_request_document(key.of_pipeline())

    def submit(self, lsn: Lsn) -> None:
        """Request an applied position of at least `lsn`, which the server has reached already.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        body = {"lsn": format_lsn(lsn), "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(*self._document), body)

    def read(self) -> Lsn:
        """Read the last request; 0 where there is none, or it cannot be read.

        Raises:
            HeadraceError: as `submit`.
        """
        answer = self._client.read(path(*self._document), allow=(404,))
        try:
            return parse_lsn(answer.json()["_source"]["lsn"]) if answer.ok else 0
        except (KeyError, TypeError, ValueError, AttributeError):
            return 0
