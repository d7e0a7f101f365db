"""Signatures against AWS's published test vectors: those of the sink, and those of the judge in the tests."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterator

import botocore.auth
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import signing
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.signing import Signer
from support.aws_signature import signature

HOST = "example.amazonaws.com"
ACCESS, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
TIME, SCOPE = "20150830T123600Z", "20150830/us-east-1/service/aws4_request"
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
VECTORS = [  # method, target, token, signature: get-vanilla and the like, of the published suite
    ("GET", "/", None, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", None, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ("GET", f"/{UNRESERVED}", None, "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
    ("GET", "//example//", None, "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
    (
        "GET",
        "/?Param2=value2&Param1=value1",
        None,
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "GET",
        "/?Param1=value2&Param1=value1",
        None,
        "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
    ),
    ("GET", "/?%E1%88%B4=bar", None, "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    (
        "GET",
        f"/?{UNRESERVED}={UNRESERVED}",
        None,
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    ("GET", "/", TOKEN, "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"),
]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    moment = dt.datetime(2015, 8, 30, 12, 36, tzinfo=dt.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
    monkeypatch.setattr(signing, "_SERVICE", "service")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    signing._credentials.cache_clear()
    yield
    signing._credentials.cache_clear()


@pytest.mark.parametrize(("method", "target", "token", "expected"), VECTORS)
def test_the_sink_signs_as_aws_published(
    method: str, target: str, token: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    headers = Signer("us-east-1").headers(method, f"https://{HOST}{target}", None)
    names = "host;x-amz-date" + (";x-amz-security-token" if token else "")
    assert headers["Authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/{SCOPE}, SignedHeaders={names}, Signature={expected}"
    )


@pytest.mark.parametrize(("method", "target", "token", "expected"), VECTORS)
def test_the_judge_of_the_tests_knows_the_published_signatures(
    method: str, target: str, token: str | None, expected: str
) -> None:
    headers = {"host": HOST, "x-amz-date": TIME, "x-amz-security-token": token or ""}
    names = "host;x-amz-date" + (";x-amz-security-token" if token else "")
    found = signature(method, target, headers, b"", scope=SCOPE, secret=SECRET, signed=names, time=TIME)
    assert found == expected


def test_the_judge_knows_the_published_signature_of_a_body() -> None:
    headers = {"host": HOST, "x-amz-date": TIME, "content-type": "application/x-www-form-urlencoded"}
    found = signature(
        "POST",
        "/",
        headers,
        b"Param1=value1",
        scope=SCOPE,
        secret=SECRET,
        signed="content-type;host;x-amz-date",
        time=TIME,
    )
    assert found == "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"


@pytest.mark.parametrize(
    "target",
    [
        "/_bulk?filter_path=errors,items.*.status&a=b:c",
        *(path(name, "_search", query={"q": name}) for name in ("a,b*", "a b/c+d%e", "日本~!'()")),
    ],
)
def test_odd_characters_are_signed_as_the_server_reads_them(target: str) -> None:
    found = Signer("us-east-1").headers("POST", f"https://{HOST}{target}", b"{}")["Authorization"]
    headers = {"host": HOST, "x-amz-date": TIME}
    right = signature(
        "POST", target, headers, b"{}", scope=SCOPE, secret=SECRET, signed="host;x-amz-date", time=TIME
    )
    assert found.endswith(f"Signature={right}")


def test_without_credentials_the_sink_waits_and_says_where_they_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty") / "none"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(empty))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(empty))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(HeadraceError, match="no AWS credentials") as caught:
        Signer("us-east-1").headers("GET", f"https://{HOST}/", None)
    assert caught.value.kind is Kind.SINK_UNREACHABLE
    assert "AWS_PROFILE" in caught.value.remedy


def test_no_log_shows_a_token(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    caplog.set_level(logging.DEBUG)
    Signer("us-east-1").headers("GET", f"https://{HOST}/", None)
    assert not re.search(f"{TOKEN}|{re.escape(SECRET)}", caplog.text)
