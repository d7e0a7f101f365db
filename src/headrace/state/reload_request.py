"""Ask a running pipeline, from another process, to take up changed files."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sinks.opensearch.client import Client, path
from headrace.state.key import StateKey


@dataclass(frozen=True, slots=True)
class ReloadAnswer:
    """What a pipeline answers to a request.

    Attributes:
        errors: every mistake, for which nothing was changed; empty where the files are taken up.
        result: what has changed, in words.
    """

    errors: Sequence[str]
    result: str


class ReloadRequest:
    """The last reload request to one pipeline, a document of the meta index; the answer is written into it.

    Args:
        client: of the cluster with the meta index.
        key: of the pipeline's state.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._document = (key.meta_index, "_doc", f"{key.id}.reload")

    def submit(self) -> str:
        """Ask for a reload; return the request's number.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        number = uuid.uuid4().hex
        self._put({"number": number, "done": False})
        return number

    def pending(self) -> str | None:
        """Return the number of the request that is not answered yet; None where there is none.

        Raises:
            HeadraceError: as `submit`.
        """
        found = self._get()
        return None if found is None or found.get("done", True) else str(found["number"])

    def answer(self, number: str, errors: Sequence[str], result: str) -> None:
        """Answer a request.

        Raises:
            HeadraceError: as `submit`.
        """
        found = self._get()
        if found is not None and found.get("number") == number:  # else another request has replaced it
            self._put({"number": number, "done": True, "errors": list(errors), "result": result})

    def answer_to(self, number: str) -> ReloadAnswer | None:
        """Return the answer to a request; None while there is none.

        Raises:
            HeadraceError: as `submit`.
        """
        found = self._get()
        if found is None or found.get("number") != number or not found.get("done"):
            return None
        return ReloadAnswer(found["errors"], found["result"])

    def forget(self) -> None:
        """Delete the request."""
        self._client.call("DELETE", path(*self._document), allow=(404,))

    def _get(self) -> dict[str, Any] | None:
        answer = self._client.read(path(*self._document), allow=(404,))
        if not answer.ok:
            return None
        found: dict[str, Any] = answer.json()["_source"]
        return found

    def _put(self, body: dict[str, Any]) -> None:
        now = dt.datetime.now(dt.UTC).isoformat()
        self._client.call("PUT", path(*self._document), {**body, "updated_at": now})
