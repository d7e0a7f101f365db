"""Turn failed requests into errors that say what the operator can do."""

from __future__ import annotations

import json
import re
import ssl
from typing import Any

from urllib3 import exceptions

from headrace.errors import HeadraceError, Kind
from headrace.model.units import quantity

_REASON_LIMIT = 1000
_REQUEST = re.compile(r"for REST request \[|request: \[|BulkShardRequest|containing \[|source\[")
_LINE_AND_COLUMN = re.compile(r"\[\d+:\d+\] ")
"""Elasticsearch 8 and 9 put the place in the request's body before a reason."""
_UNAUTHORIZED, _FORBIDDEN, _TIMED_OUT = 401, 403, 408

_CERTIFICATE_WANTED = ("CERTIFICATE_REQUIRED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE")
"""OpenSSL's names for what a server says that does not take the client's certificate, or its absence."""

_PASSES = re.compile(
    rb'"type"\s*:\s*"(?:[a-z_]*block|snapshot_in_progress|task_cancelled'
    rb'|search_context_missing(?:_nodes)?|shard_not_found)_exception"'
)
"""What passes although its status (400, 403, 404) says that the request is wrong.

A block is set by a full disk or an operator. An index in a snapshot cannot be deleted. A search is cancelled
by a cluster under load, and a scroll is lost with its node.
"""

_OF_CLUSTER = {"_id", "_shards", "found", "succeeded", "timed_out"}
"""What a cluster's answers without an error have at the top: of a document, shards, a scroll, the health."""
_QUOTED = re.compile(
    r"(?<!\w)'[^']*'?|(?:The Canonical String|x-amz-|Authorization=).*", re.IGNORECASE | re.DOTALL
)
"""What gateways quote of a request, with credentials: Amazon quotes the token of a role, or a password."""
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)

_CREDENTIALS = "Correct username and password of the sink, its api_key, bearer_token or client_cert."

_WITHOUT_VALUES = [
    re.compile(pattern)
    for pattern in (
        r"failed to parse field \[[^\]]*\] of type \[[^\]]*\]",
        r"object mapping for \[[^\]]*\] tried to parse field \[[^\]]*\] as object",
        r"object field starting or ending with a \[\.\]",
        r"mapping set to strict, dynamic introduction of \[[^\]]*\] within \[[^\]]*\] is not allowed",
        r"Limit of total fields \[\d+\] has been exceeded",
        r"The number of nested documents has exceeded the allowed limit of \[\d+\]",
        r'Document contains at least one immense term in field="[^"]*"',
    )
]
"""Beginnings of reasons that name fields, types and limits only; the rest may quote the document."""


def reason(data: bytes) -> str:
    """Return OpenSearch's own words for a failure, on one line: `type: reason (cause)`."""
    try:
        parsed = json.loads(data)
    except ValueError:
        # A proxy's page of HTML.
        title = _TITLE.search(data)
        text = (title[1] if title else data)[:200].decode("utf-8", "replace")
        return _QUOTED.sub("…", " ".join(text.split()))
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if isinstance(error, dict) and (said := error.get("message", error.get("Message"))):
        return _QUOTED.sub("…", describe(said))  # of a gateway before the cluster, such as Amazon's
    if isinstance(error, dict) and "unassigned_shards" in error:
        unassigned = quantity(error["unassigned_shards"], "shard")
        return f"the cluster's health is {error.get('status')}, {unassigned} unassigned"
    return describe(error)


def is_of_gateway(data: bytes) -> bool:
    """Tell whether a failure was answered by something before the cluster, which knows nothing of indexes.

    The cluster is known by what it says, since each gateway speaks otherwise.
    """
    try:
        parsed = json.loads(data)
    except ValueError:
        return True
    if not isinstance(parsed, dict) or not parsed:
        return parsed != {}
    error = parsed.get("error")
    if isinstance(error, str):
        return "[" not in error  # around the names of what is missing or refused
    is_error = isinstance(error, dict) and {"type", "reason"} <= error.keys()
    return not is_error and not _OF_CLUSTER & parsed.keys()


def says_nothing(data: bytes) -> bool:
    """Tell whether a 400 or 404 says that nothing is wrong or absent: it is a gateway's, or passes."""
    return is_of_gateway(data) or _PASSES.search(data) is not None


def describe(error: object) -> str:
    """Format an `error` object of an answer or of a bulk item as one line."""
    if not isinstance(error, dict):
        return " ".join(str(error).split())[:_REASON_LIMIT]
    parts = [str(error.get("type", "")), _reason_of(error)]
    cause = error.get("caused_by")
    text = ": ".join(part for part in parts if part)
    if isinstance(cause, dict) and cause.get("reason"):
        text += f" ({_reason_of(cause)})"
    return " ".join(text.split())[:_REASON_LIMIT]


def describe_without_request(error: object) -> str:
    """Format as `describe` an error that no document caused, without the request that it quotes."""
    return _without_request(describe(error))


def reason_without_values(data: bytes) -> str:
    """Format as `reason` the refusal of a document, without what it quotes of the document."""
    try:
        parsed = json.loads(data)
    except ValueError:
        return "an answer that is no JSON"
    return describe_without_values(parsed.get("error", parsed) if isinstance(parsed, dict) else parsed)


def describe_without_values(error: object) -> str:
    """Format as `describe`, with types and field only: reasons quote values in many ways."""
    if not isinstance(error, dict):
        return "no reason that could be shown"
    kinds, words = [], ""
    # Only known beginnings of reasons are shown: the rest may quote values of the document.
    while isinstance(error, dict):
        kinds.append(str(error.get("type", "")))
        words = words or _known_words(_reason_of(error))
        error = error.get("caused_by")
    text = " of ".join(dict.fromkeys(filter(None, kinds))) or "no type"
    return f"{text}: {words}" if words else text


def _reason_of(error: dict[str, Any]) -> str:
    return _LINE_AND_COLUMN.sub("", str(error.get("reason", "")), count=1)


def _without_request(text: str) -> str:
    return _REQUEST.split(text)[0].rstrip(" ,:[")


def _known_words(reason: str) -> str:
    found = next((match for pattern in _WITHOUT_VALUES if (match := pattern.match(reason))), None)
    return "" if found is None else " ".join(found[0].split())[:_REASON_LIMIT]


def from_status(status: int, data: bytes, place: str) -> HeadraceError:
    """Build the error for an answer with an unexpected status."""
    why = _without_request(reason(data))
    said = f": {why}" if why else ""
    if status == _UNAUTHORIZED:
        return HeadraceError(
            Kind.AUTHENTICATION, f"OpenSearch at {place} refused the credentials{said}", _CREDENTIALS
        )
    passes = _PASSES.search(data) is not None
    if status == _FORBIDDEN and not passes:
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"OpenSearch at {place} does not allow this user to do that{said}",
            _remedy_of_refusal(data, why),
        )
    # 429 is a full queue or a circuit breaker; 5xx also comes from a proxy whose cluster is away.
    if status in (_FORBIDDEN, _TIMED_OUT, 429) or status >= 500:  # noqa: PLR2004
        return HeadraceError(
            Kind.SINK_BUSY,
            f"OpenSearch at {place} cannot take the request now (status {status}){said}",
            "Look at the cluster's health, its disk watermarks and its write queue.",
        )
    # As during a restore: it passes.
    if why.startswith("index_closed_exception"):
        return HeadraceError(
            Kind.SINK_BUSY,
            f"an index at {place} is closed{said}",
            "Open it, or finish the restore that it is closed for.",
        )
    if passes:
        return HeadraceError(
            Kind.SINK_BUSY,
            f"OpenSearch at {place} cannot do that now (status {status}){said}",
            "Wait: the request is tried again. If this goes on, see whether a snapshot of the cluster hangs.",
        )
    return HeadraceError(
        Kind.SINK_REJECTED,
        f"OpenSearch at {place} refused a request (status {status}){said}",
        "Check the URL of the sink, and the proxy before the cluster." if is_of_gateway(data) else "",
    )


def _remedy_of_refusal(data: bytes, why: str) -> str:
    """Return what mends status 403: not each is a missing permission."""
    if "current license" in why:
        return "Renew the cluster's licence."
    if not is_of_gateway(data) or "not authorized" in why:
        return "Give the user's role the missing permission."
    if "ignature" in why or "token" in why:
        return (
            "Correct this machine's clock, or renew the credentials that sign requests. A proxy or tunnel "
            "before the domain must not change the host or the path."
        )
    return "Look at the rules of the proxy before the cluster."


def cluster_unknown(error: HeadraceError) -> HeadraceError:
    """Build the error for a gateway that does not find the cluster, from its answer."""
    return HeadraceError(
        Kind.SINK_BUSY,
        f"{error.cause}; that is no answer of the cluster, which answered there before",
        "Look at the proxy before the cluster, and whether the cluster runs.",
    )


def credentials_unknown(error: HeadraceError) -> HeadraceError:
    """Build the error for credentials that a starting cluster does not know yet, from its refusal of them."""
    return HeadraceError(
        Kind.SINK_BUSY,
        f"{error.cause}; it accepted them before, and refuses them while it starts",
        f"Wait until the cluster has started. If it goes on: {error.remedy}",
    )


def certificate_unknown(error: HeadraceError) -> HeadraceError:
    """Build the error for a certificate that is being renewed, from the refusal of it by either side."""
    return HeadraceError(
        Kind.SINK_BUSY,
        f"{error.cause}; certificates were trusted before, and may be in the middle of a renewal",
        f"Wait until all files and nodes have the new ones. If it goes on: {error.remedy}",
    )


def state_unknown(place: str) -> HeadraceError:
    """Build the error for a cluster that has not recovered its metadata, and so finds no index."""
    return HeadraceError(
        Kind.SINK_BUSY,
        f"the cluster at {place} has not recovered its state: it does not know its indexes yet",
        "Wait until all of its nodes have started.",
    )


def not_sent(error: exceptions.HTTPError) -> bool:
    """Tell whether the failure came before the request's first byte, so that another node repeats nothing."""
    # A read that times out is not early: the node may have done the work.
    early = isinstance(error, exceptions.NewConnectionError | exceptions.ConnectTimeoutError)
    return early or _is_untrusted(error)


def from_exception(error: exceptions.HTTPError, place: str) -> HeadraceError:
    """Build the error for a request without an answer."""
    if _is_untrusted(error):
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"the certificate of OpenSearch at {place} is not trusted: {_innermost(error)}",
            _tls_remedy(_innermost(error)),
        )
    if any(name in _innermost(error).upper().replace(" ", "_") for name in _CERTIFICATE_WANTED):
        return HeadraceError(
            Kind.AUTHENTICATION,
            f"OpenSearch at {place} lets in only clients whose certificate it knows: {_innermost(error)}",
            "Set client_cert (and client_key) to one that the cluster's authority issued.",
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


def _is_untrusted(error: BaseException) -> bool:
    return isinstance(error, exceptions.SSLError) and any(
        isinstance(cause, ssl.SSLCertVerificationError) for cause in (*error.args, error.__cause__)
    )


def _tls_remedy(message: str) -> str:
    if "expired" in message or "not yet valid" in message:
        return "Renew the cluster's certificate (or correct this machine's clock), then start again."
    return "Set ca_file to the PEM file of its authority, or correct the host name in the URL."


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return text or type(error).__name__
