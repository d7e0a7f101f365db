"""How does somebody elsewhere ask a pipeline to build an index anew, or to go back to what was before?

An order is a document beside the pipeline's state, one to an index. Whoever runs the pipeline carries it out
between two batches and takes it away; where nothing runs, the next start does.
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
    """What is asked for.

    Attributes:
        number: of this order; what it was carried out on bears it, so that a kill does not repeat it.
        asked_at: for people, ISO 8601.
    """

    index: str
    what: What
    number: str
    asked_at: str
    seq_no: int
    primary_term: int


class ControlRequests:
    """The orders to one pipeline."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self._meta = meta_index(prefix)

    def give(self, index: str, what: What) -> str:
        """Ask; what was asked before of the same index and is not done is forgotten. Returns its number.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        number = uuid.uuid4().hex
        body = {"order": what, "number": number, "updated_at": dt.datetime.now(dt.UTC).isoformat()}
        self._client.call("PUT", path(self._meta, "_doc", self._id(index)), body)
        return number

    def read(self, indexes: Iterable[str]) -> list[ControlRequest]:
        """What is asked of these indexes.

        Raises:
            HeadraceError: as `give`.
        """
        by_id = {self._id(one): one for one in indexes}
        answer = self._client.read(path(self._meta, "_mget"), {"ids": list(by_id)}, allow=(404,))
        if not by_id or not answer.ok:
            return []
        return [
            ControlRequest(
                by_id[one["_id"]],
                cast("What", one["_source"]["order"]),
                one["_source"]["number"],
                one["_source"]["updated_at"],
                one["_seq_no"],
                one["_primary_term"],
            )
            for one in answer.json()["docs"]
            if one.get("found") and one["_source"].get("order") in ("reindex", "rollback")
        ]

    def done(self, order: ControlRequest) -> None:
        """Take it away, unless another stands in its place.

        Raises:
            HeadraceError: as `give`.
        """
        seen: dict[str, str | int] = {"if_seq_no": order.seq_no, "if_primary_term": order.primary_term}
        target = path(self._meta, "_doc", self._id(order.index), query=seen)
        self._client.call("DELETE", target, allow=(404, 409))

    def forget(self, indexes: Iterable[str]) -> None:
        """Take all of them away."""
        for index in indexes:
            self._client.call("DELETE", path(self._meta, "_doc", self._id(index)), allow=(404,))

    def _id(self, index: str) -> str:
        return f"{self._slot}.order.{index}"
