"""Refuse a request: a status, a body after RFC 9457, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from headrace.errors import HeadraceError, Kind, Retry


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 - the answer to a request, not a failure of ours
    """A request that is not carried out.

    Attributes:
        status: the status of the answer.
        outcome: the word that it is counted under.
        error: code, cause and remedy.
        headers: more headers of the answer.
    """

    status: HTTPStatus
    outcome: str
    error: HeadraceError
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """Return the answer."""
        body = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.error.cause,
            "code": self.error.code,
            "remedy": self.error.remedy,
        }
        return JSONResponse(body, self.status, self.headers, media_type="application/problem+json")


def refuse(status: HTTPStatus, outcome: str, cause: str, remedy: str = "", **headers: str) -> Refusal:
    """Return a refusal for a request that is wrong; underscores in a header's name become hyphens."""
    kinds = {HTTPStatus.UNAUTHORIZED: Kind.AUTHENTICATION, HTTPStatus.FORBIDDEN: Kind.PRIVILEGE}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Refusal(status, outcome, HeadraceError(kinds.get(status, Kind.USAGE), cause, remedy), named)


def refusal_of(error: HeadraceError) -> Refusal:
    """Return the refusal for an error of the pipeline, which a right request has met."""
    if error.kind is Kind.USAGE:
        return Refusal(HTTPStatus.CONFLICT, "conflict", error)
    if error.retry is Retry.BACK_OFF or error.kind is Kind.BEHIND:
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "failed", error, {"Retry-After": "5"})
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", error)
