"""Tokens of clouds in the place of a password, asked from servers that play the clouds' own."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import botocore.session
import pytest

from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres import cloud_tokens
from headrace.postgres.address import for_slot, parse_address
from headrace.postgres.cloud_tokens import cloud_token
from headrace.postgres.password import cloud_of, split_command
from headrace.sinks.opensearch import signing
from support.aws_signature import signature
from support.metadata_server import metadata_server

HOST = "shop.cluster-abc.eu-central-1.rds.amazonaws.com"
RDS = parse_address(f"postgresql://app%40x@{HOST}:5433/shop")
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDHERE",
    "AWS_SECRET_ACCESS_KEY": "s3cret/key",
    "AWS_SESSION_TOKEN": "tok/en+",
}


@pytest.fixture(autouse=True)
def _without_an_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", *KEYS):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    clouds = (cloud_tokens._aws_session, cloud_tokens._azure_identity, cloud_tokens._google_identity)
    identities = (*clouds, signing._credentials)
    for identity in identities:
        identity.cache_clear()
    yield
    for identity in identities:
        identity.cache_clear()


def test_a_command_that_names_a_cloud_goes_with_the_connection_string() -> None:
    """So executors ask for themselves; no token travels."""
    url = for_slot("postgresql://u@h/d", "orders", split_command("iam:azure"))
    assert cloud_of(parse_address(url).command) == "azure"
    assert cloud_of(("iam", "azure")) is None
    with pytest.raises(HeadraceError, match="a cloud that is not known") as caught:
        split_command("iam:oracle")
    assert caught.value.kind is Kind.CONFIG


def test_a_token_of_rds_is_the_one_that_aws_own_library_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    moment = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
    client = botocore.session.Session().create_client("rds", "eu-central-1")
    theirs = client.generate_db_auth_token(HOST, 5433, "app@x")
    found = cloud_token("aws", RDS)
    assert dict(parse_qsl(urlsplit(f"https://{found}").query)) == dict(
        parse_qsl(urlsplit(f"https://{theirs}").query)
    )


def test_a_token_of_rds_is_signed_as_its_server_checks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    place, _, query = cloud_token("aws", RDS).partition("/")
    found = dict(parse_qsl(query.removeprefix("?")))
    access, _, scope = found["X-Amz-Credential"].partition("/")
    assert (place, found["Action"], found["DBUser"], found["X-Amz-Expires"]) == (
        f"{HOST}:5433",
        "connect",
        "app@x",
        "900",
    )
    assert scope.partition("/")[2] == "eu-central-1/rds-db/aws4_request"
    assert access == KEYS["AWS_ACCESS_KEY_ID"]
    right = signature(
        "GET",
        f"/{query}",
        {"host": place},
        b"",
        scope=scope,
        secret=KEYS["AWS_SECRET_ACCESS_KEY"],
        signed="host",
        time=found["X-Amz-Date"],
    )
    assert found["X-Amz-Signature"] == right


def test_a_host_of_another_name_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    proxied = parse_address("postgresql://u@db.internal/d")
    with pytest.raises(HeadraceError, match="a region of AWS") as caught:
        cloud_token("aws", proxied)
    assert (caught.value.kind, "AWS_REGION" in caught.value.remedy) == (Kind.CONFIG, True)
    for name, region in (("AWS_DEFAULT_REGION", "eu-north-1"), ("AWS_REGION", "eu-west-3")):
        monkeypatch.setenv(name, region)
        cloud_tokens._aws_session.cache_clear()
        assert f"{region}%2Frds-db" in cloud_token("aws", proxied)


def test_a_token_of_rds_is_for_the_port_that_libpq_connects_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "PGPORT": "6432"}.items():
        monkeypatch.setenv(name, value)
    assert cloud_token("aws", parse_address(f"postgresql://u@{HOST}/d")).startswith(f"{HOST}:6432/")


def test_a_file_that_an_identity_needs_may_be_missing_for_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "none"),
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AZURE_CLIENT_ID": "c",
        "AZURE_TENANT_ID": "t",
        "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    for cloud in ("aws", "azure"):
        with pytest.raises(HeadraceError, match="got no token") as caught:
            cloud_token(cloud, RDS)
        assert caught.value.retry is Retry.BACK_OFF
    with pytest.raises(HeadraceError, match="no AWS credentials") as caught:
        signing.Signer("eu-central-1").headers("GET", "https://search/", None)
    assert caught.value.retry is Retry.BACK_OFF


@pytest.mark.parametrize("url", ["postgresql://u@a,b/d", "postgresql://a.eu-west-1.rds.amazonaws.com/d"])
def test_a_token_of_rds_is_for_one_host_and_user(url: str) -> None:
    with pytest.raises(HeadraceError, match="one host and a user") as caught:
        cloud_token("aws", parse_address(url))
    assert caught.value.kind is Kind.CONFIG


def test_without_an_identity_of_aws_the_connection_is_tried_again() -> None:
    with pytest.raises(HeadraceError, match="iam:aws got no token") as caught:
        cloud_token("aws", RDS)
    assert (caught.value.kind, caught.value.retry) == (Kind.PASSWORD_COMMAND, Retry.BACK_OFF)


def test_an_identity_of_aws_that_is_refused_or_unknown_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of the pod")
    for name, value in {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    with refusing_sts() as place:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{place}")
        with pytest.raises(HeadraceError, match="AccessDenied") as caught:
            cloud_token("aws", RDS)
        assert caught.value.kind is Kind.PASSWORD_COMMAND
        with pytest.raises(HeadraceError, match="AccessDenied") as caught:
            signing.Signer("eu-central-1").headers("GET", "https://search/", None)
        assert caught.value.kind is Kind.SINK_UNREACHABLE
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    monkeypatch.setenv("AWS_PROFILE", "absent")
    cloud_tokens._aws_session.cache_clear()
    for host in (HOST, "db.internal"):
        with pytest.raises(HeadraceError, match="absent") as caught:
            cloud_token("aws", parse_address(f"postgresql://u@{host}/d"))
        assert caught.value.kind is Kind.PASSWORD_COMMAND


@contextmanager
def refusing_sts() -> Iterator[str]:
    """AWS's service of tokens for roles, which refuses; yields `HOST:PORT`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
            self.send_response(403)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the library
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


class Tokens:
    """What a metadata server gives: each token lives for so many seconds."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    def azure(self, path: str) -> object:
        self.asked.append(path)
        ends = int(time.time()) + self.seconds
        return {
            "access_token": f"azure {len(self.asked)}",
            "expires_on": ends,
            "resource": "r",
            "token_type": "Bearer",
        }

    def google(self, path: str) -> object:
        if "/token" not in path:
            return {"aliases": ["default"], "email": "app@p.iam", "scopes": []}
        self.asked.append(path)
        return {
            "access_token": f"google {len(self.asked)}",
            "expires_in": self.seconds,
            "token_type": "Bearer",
        }


def test_a_token_of_azure_is_kept_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(60)
    with metadata_server(tokens.azure) as place:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{place}/token")
        monkeypatch.setenv("IDENTITY_HEADER", "h")
        found = [cloud_token("azure", RDS) for _ in range(2)]
        tokens.seconds = 7200
        found += [cloud_token("azure", RDS) for _ in range(2)]
    assert found == ["azure 1", "azure 2", "azure 3", "azure 3"]
    assert all("ossrdbms-aad.database.windows.net" in path for path in tokens.asked)


def test_a_token_of_google_is_kept_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(60)
    with metadata_server(tokens.google) as place:
        monkeypatch.setenv("GCE_METADATA_HOST", place)
        monkeypatch.setenv("GCE_METADATA_IP", place)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
        found = [cloud_token("google", RDS) for _ in range(2)]
        tokens.seconds = 3600
        found += [cloud_token("google", RDS) for _ in range(2)]
    assert found == ["google 1", "google 2", "google 3", "google 3"]
    assert all("sqlservice.login" in path for path in tokens.asked)


def test_no_log_shows_a_token(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.DEBUG)
    token = cloud_token("aws", RDS)
    signed = dict(parse_qsl(urlsplit(f"https://{token}").query))
    assert not any(secret in caplog.text for secret in (signed["X-Amz-Signature"], "s3cret/key", "tok/en+"))
