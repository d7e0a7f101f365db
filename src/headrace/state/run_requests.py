"""Ask a running pipeline, from another process, for something that concerns the whole run.

A run request is a document beside the pipeline's state, one for each subject. The driver carries it out and
deletes it. It is meant for the run that is alive: a start deletes what is left of earlier ones.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.sinks.opensearch.client import Client, path
from headrace.state.key import StateKey
from headrace.state.system_index import entries_by_id

RunRequestKind = Literal["pause", "resume", "log_level"]

_SUBJECTS: Mapping[RunRequestKind, str] = {"pause": "pause", "resume": "pause", "log_level": "log_level"}
"""A request replaces a pending one with the same subject."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request for a run.

    Attributes:
        kind: what to do.
        value: the log level; else empty.
        by: who asks.
        number: id of the request.
        seq_no, primary_term: the document's version, so that only this request is deleted.
    """

    kind: RunRequestKind
    value: str
    by: str
    number: str
    seq_no: int
    primary_term: int


class RunRequests:
    """Reads and writes the run requests of one pipeline."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._slot = key.slot
        self._meta = key.meta_index

    def submit(self, kind: RunRequestKind, by: str, value: str = "") -> str:
        """Request something of the run; returns the request's number.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        number = uuid.uuid4().hex
        now = dt.datetime.now(dt.UTC).isoformat()
        body = {"kind": kind, "value": value, "by": by, "number": number, "updated_at": now}
        self._client.call("PUT", path(self._meta, "_doc", self._id(_SUBJECTS[kind])), body)
        return number

    def read(self) -> list[RunRequest]:
        """Read the pending requests.

        Raises:
            HeadraceError: as `submit`.
        """
        ids = [self._id(subject) for subject in dict.fromkeys(_SUBJECTS.values())]
        return [
            RunRequest(
                document["_source"]["kind"],
                document["_source"]["value"],
                document["_source"]["by"],
                document["_source"]["number"],
                document["_seq_no"],
                document["_primary_term"],
            )
            for document in entries_by_id(self._client, self._meta, ids)
            if document["_source"].get("kind") in _SUBJECTS
        ]

    def done(self, request: RunRequest) -> None:
        """Delete a request, unless another one has replaced it.

        Raises:
            HeadraceError: as `submit`.
        """
        seen: dict[str, str | int] = {"if_seq_no": request.seq_no, "if_primary_term": request.primary_term}
        target = path(self._meta, "_doc", self._id(_SUBJECTS[request.kind]), query=seen)
        self._client.call("DELETE", target, allow=(404, 409))

    def forget(self) -> None:
        """Delete every request."""
        for subject in dict.fromkeys(_SUBJECTS.values()):
            self._client.call("DELETE", path(self._meta, "_doc", self._id(subject)), allow=(404,))

    def _id(self, subject: str) -> str:
        return f"{self._slot}.run_request.{subject}"
