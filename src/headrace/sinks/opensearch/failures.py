"""What does a failed request mean to the operator?"""

from __future__ import annotations

import json
import ssl

from urllib3 import exceptions

from headrace.errors import HeadraceError, Kind

_REASON_LIMIT = 1000


def reason(data: bytes) -> str:
    """OpenSearch's own words for a failure, on one line: `type: reason (cause)`."""
    try:
        parsed = json.loads(data)
    except ValueError:
        return " ".join(data[:200].decode("utf-8", "replace").split())
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    return described(error)


def described(error: object) -> str:
    """An `error` object of an answer or of a bulk item as one line."""
    if not isinstance(error, dict):
        return " ".join(str(error).split())[:_REASON_LIMIT]
    parts = [str(error.get("type", "")), str(error.get("reason", ""))]
    cause = error.get("caused_by")
    text = ": ".join(part for part in parts if part)
    if isinstance(cause, dict) and cause.get("reason"):
        text += f" ({cause['reason']})"
    return " ".join(text.split())[:_REASON_LIMIT]


def from_status(status: int, data: bytes, place: str) -> HeadraceError:
    """The error for an answer with an unexpected status."""
    if status == 401:  # noqa: PLR2004
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"OpenSearch at {place} refused the user, the password or the API key",
            "Correct username and password of the sink, or its api_key.",
        )
    if status == 403 and b"cluster_block_exception" not in data:  # noqa: PLR2004
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"OpenSearch at {place} does not allow this user to do that: {reason(data)}",
            "Give the user's role the missing permission.",
        )
    if status in (403, 408, 429) or status >= 500:  # noqa: PLR2004
        return HeadraceError(
            Kind.SINK_BUSY,
            f"OpenSearch at {place} cannot take the request now (status {status}): {reason(data)}",
            "Look at the cluster's health, its disk watermarks and its write queue.",
        )
    return HeadraceError(
        Kind.SINK_REJECTED, f"OpenSearch at {place} refused a request (status {status}): {reason(data)}"
    )


def not_sent(error: exceptions.HTTPError) -> bool:
    """Whether the failure came before the request's first byte: trying elsewhere repeats nothing."""
    early = isinstance(error, exceptions.NewConnectionError | exceptions.ConnectTimeoutError)
    return early or _untrusted(error)


def from_exception(error: exceptions.HTTPError, place: str) -> HeadraceError:
    """The error for a request without an answer."""
    if _untrusted(error):
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"the certificate of OpenSearch at {place} is not trusted: {_innermost(error)}",
            "Set ca_file to the PEM file of its authority, or correct the host name in the URL.",
        )
    if not_sent(error):
        return HeadraceError(
            Kind.SINK_UNREACHABLE,
            f"no connection to OpenSearch at {place}: {_innermost(error)}",
            "Check the URL and that the cluster runs.",
        )
    return HeadraceError(
        Kind.SINK_UNREACHABLE,
        f"no answer from OpenSearch at {place}: {_innermost(error)}",
        "Check the cluster's health and whether the URL is http or https, or raise timeout_secs.",
    )


def _untrusted(error: BaseException) -> bool:
    return isinstance(error, exceptions.SSLError) and any(
        isinstance(cause, ssl.SSLCertVerificationError) for cause in (*error.args, error.__cause__)
    )


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return text or type(error).__name__
