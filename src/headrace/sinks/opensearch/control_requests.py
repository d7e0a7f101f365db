"""Requests to a running pipeline: rebuild an index, or roll back to the generation before.

A request is a document beside the pipeline's state, one for each index. The driver carries it out between two
batches and deletes it; where no pipeline runs, the next start does.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.state_document import meta_index

What = Literal["reindex", "rollback"]


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request for one index.

    Attributes:
        index: the logical index.
        what: what to do.
        number: id of the request; the generation that it was carried out on stores it, so that it is not
            repeated after a kill.
        asked_at: ISO 8601.
        seq_no, primary_term: the document's version, so that only this request is deleted.
    """

    index: str
    what: What
    number: str
    asked_at: str
    seq_no: int
    primary_term: int


class ControlRequests:
    """Reads and writes the control requests of one pipeline."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self._meta = meta_index(prefix)

    def give(self, index: str, what: What) -> str:
        """Request something of the pipeline; returns the request's number.

        Replaces a pending request for the same index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        number = uuid.uuid4().hex
        body = {"order": what, "number": number, "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(self._meta, "_doc", self._id(index)), body)
        return number

    def read(self, indexes: Iterable[str]) -> list[ControlRequest]:
        """Read the pending requests for these indexes.

        Raises:
            HeadraceError: as `give`.
        """
        by_id = {self._id(index): index for index in indexes}
        answer = self._client.read(path(self._meta, "_mget"), {"ids": list(by_id)}, allow=(404,))
        if not by_id or not answer.ok:
            return []
        return [
            ControlRequest(
                by_id[document["_id"]],
                cast("What", document["_source"]["order"]),
                document["_source"]["number"],
                document["_source"]["updated_at"],
                document["_seq_no"],
                document["_primary_term"],
            )
            for document in answer.json()["docs"]
            if document.get("found") and document["_source"].get("order") in ("reindex", "rollback")
        ]

    def done(self, order: ControlRequest) -> None:
        """Delete a request, unless another one has replaced it.

        Raises:
            HeadraceError: as `give`.
        """
        seen: dict[str, str | int] = {"if_seq_no": order.seq_no, "if_primary_term": order.primary_term}
        target = path(self._meta, "_doc", self._id(order.index), query=seen)
        self._client.call("DELETE", target, allow=(404, 409))

    def forget(self, indexes: Iterable[str]) -> None:
        """Delete the requests for these indexes."""
        for index in indexes:
            self._client.call("DELETE", path(self._meta, "_doc", self._id(index)), allow=(404,))

    def _id(self, index: str) -> str:
        return f"{self._slot}.order.{index}"
