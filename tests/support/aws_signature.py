"""Verify AWS signatures (version 4) as a service of AWS does, written from its documentation alone."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote


def signature(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    scope: str,
    secret: str,
    signed: str,
    time: str,
) -> str:
    """Return the signature that a request must have.

    Args:
        target: path and query as they are sent.
        headers: with names in lower case.
        scope: `DATE/REGION/SERVICE/aws4_request`.
        signed: the names of the signed headers, with semicolons between.
        time: as `X-Amz-Date` has it.
    """
    canonical = canonical_request(method, target, headers, body, signed)
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def canonical_request(method: str, target: str, headers: Mapping[str, str], body: bytes, signed: str) -> str:
    """Return the text that is signed; the arguments as of `signature`."""
    place, _, found = target.partition("?")
    # Each part of the path is encoded as it was sent, encoded already.
    path = quote("/" + "/".join(part for part in place.split("/") if part), safe="/-_.~")
    if len(path) > 1 and place.endswith("/"):
        path += "/"
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(found, keep_blank_values=True)
        if name != "X-Amz-Signature"
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in signed.split(";")]
    return "\n".join([method, path, query, *lines, "", signed, hashlib.sha256(body).hexdigest()])


def mismatch(method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the body of AWS's refusal of a signature, which quotes the request that was to be signed."""
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    canonical = canonical_request(method, target, headers, body, signed)
    text = (
        "The request signature we calculated does not match the signature you provided. Check your AWS "
        "Secret Access Key and signing method. Consult the service documentation for details.\n\n"
        f"The Canonical String for this request should have been\n'{canonical}'\n\n"
        "The String-to-Sign should have been\n"
        f"'AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{hashlib.sha256(canonical.encode()).hexdigest()}'\n"
    )
    return json.dumps({"message": text}).encode()


def is_signed(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Mapping[str, tuple[str, str | None]],
    place: str,
) -> bool:
    """Tell whether a request carries a right signature in its header.

    Args:
        secrets: key and session token, by access key.
        place: `REGION/SERVICE` that it must be for.
    """
    kind, _, words = headers.get("authorization", "").partition(" ")
    if kind != "AWS4-HMAC-SHA256":
        return False
    fields = dict(word.strip().split("=", 1) for word in words.split(","))
    access, _, scope = fields["Credential"].partition("/")
    secret, token = secrets.get(access, ("", None))
    if scope.partition("/")[2] != f"{place}/aws4_request" or headers.get("x-amz-security-token") != token:
        return False
    time = headers["x-amz-date"]
    names = fields["SignedHeaders"]
    if scope[:8] != time[:8] or not {"host", "x-amz-date"} <= set(names.split(";")):
        return False
    right = signature(method, target, headers, body, scope=scope, secret=secret, signed=names, time=time)
    return bool(secret) and hmac.compare_digest(right, fields["Signature"])
