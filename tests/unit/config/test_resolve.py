"""Where a value comes from: a reference, a reserved variable, the file; in this order."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from headrace.config.load import load_deployment
from headrace.config.resolve import Resolved, resolve
from headrace.config.secret import Secret
from headrace.config.suggestion import suggest_deployment
from headrace.errors import ErrorGroup

SINK = '\n[sinks.primary]\ntype = "opensearch"\n'


def resolved(folder: Path, text: str, environ: dict[str, str] | None = None) -> Resolved:
    file = folder / "headrace.toml"
    file.write_text('[source]\ntype = "postgres"\n' + text)
    return resolve(load_deployment(file, environ or {}))


@pytest.mark.parametrize(
    ("text", "environ", "url"),
    [
        ('connection_url = "postgres://a/b"', {}, "postgres://a/b"),
        ('connection_url = "host=a dbname=b"', {}, "host=a dbname=b"),
        ('connection_url = "postgres://a/b"', {"DATABASE_URL": "postgres://c/d"}, "postgres://c/d"),
        ('connection_url = "postgres://a/b"', {"DATABASE_URL": ""}, "postgres://a/b"),
        ("", {"DATABASE_URL": "postgres://c/d"}, "postgres://c/d"),
        ("", {"SOURCE_POSTGRES_CONNECTION_URL": "postgres://c/d"}, "postgres://c/d"),
        (
            'connection_url = { database = "d", password = "p" }',
            {"SOURCE_POSTGRES_CONNECTION_URL_PASSWORD": "q"},
            "postgresql://postgres:q@127.0.0.1:5432/d",
        ),
        (
            'connection_url = "postgres://a/b?x=1"\nssl_mode = "require"\nssl_root_cert = "/a b.pem"',
            {},
            "postgres://a/b?x=1&sslmode=require&sslrootcert=%2Fa%20b.pem",
        ),
        *(
            (f'connection_url = "{url}"\nssl_mode = "verify-full"', {}, f"{url}{mark}sslmode=verify-full")
            for url, mark in (
                ("postgresql://u:p?w@h/d", "?"),
                ("postgresql://u:p?w@h/d?options=a@b", "&"),
                ("postgresql://h/d?options=a@b", "&"),
                ("jdbc:postgresql://h/d?user=u&password=p@w", "&"),
            )
        ),
        (
            'connection_url = "host=a"\nssl_cert = "/it\'s.pem"\nssl_key = "/k"',
            {},
            "host=a sslcert='/it\\'s.pem' sslkey='/k'",
        ),
        (
            'connection_url = { env = "X" }',
            {"X": "postgres://x", "DATABASE_URL": "postgres://c"},
            "postgres://x",
        ),
        ('connection_url = { database = "d" }', {}, "postgresql://postgres@127.0.0.1:5432/d"),
        ('connection_url = { database = "d" }', {"DATABASE_URL": "postgres://c/d"}, "postgres://c/d"),
        (
            'connection_url = { host = "h", port = 1, user = "a@b", password = "p:/ %", database = "d e" }',
            {},
            "postgresql://a%40b:p%3A%2F%20%25@h:1/d%20e",
        ),
        (
            'connection_url = { database = "d", password = { env = "PW" } }',
            {"PW": "s&?#"},
            "postgresql://postgres:s%26%3F%23@127.0.0.1:5432/d",
        ),
        ('connection_url = { database = "d", host = "::1" }', {}, "postgresql://postgres@[::1]:5432/d"),
        (
            'connection_url = { database = "d", host = "a,::1,/run/pg", port = 6432 }',
            {},
            "postgresql://postgres@a:6432,[::1]:6432,%2Frun%2Fpg:6432/d",
        ),
        (
            'connection_url = { database = "d", host = "/run/pg" }',
            {},
            "postgresql://postgres@%2Frun%2Fpg:5432/d",
        ),
    ],
)
def test_the_database(tmp_path: Path, text: str, environ: dict[str, str], url: str) -> None:
    assert resolved(tmp_path, text, environ).database_url.reveal() == url


def test_certificates_of_the_database_lie_beside_the_file(tmp_path: Path) -> None:
    text = 'connection_url = "host=a"\nssl_root_cert = "ca.pem"\nssl_cert = "c.pem"\nssl_key = "c.key"'
    found = resolved(tmp_path, text).database_url.reveal()
    assert (
        found
        == f"host=a sslrootcert='{tmp_path}/ca.pem' sslcert='{tmp_path}/c.pem' sslkey='{tmp_path}/c.key'"
    )
    text = 'connection_url = "host=a"\nssl_root_cert = "system"'
    assert resolved(tmp_path, text).database_url.reveal() == "host=a sslrootcert='system'"


URL = 'connection_url = "postgres://a/b"'


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ('url = "http://a:1"', {}, ("http://a:1", None, None)),
        ('url = "http://a:1"', {"PRIMARY_OPENSEARCH_URL": "http://b:2"}, ("http://b:2", None, None)),
        (
            'url = {env = "U"}',
            {"U": "http://u", "PRIMARY_OPENSEARCH_URL": "http://b"},
            ("http://u", None, None),
        ),
        (
            "",
            {
                "PRIMARY_OPENSEARCH_URL": "http://b",
                "PRIMARY_OPENSEARCH_USERNAME": "u",
                "PRIMARY_OPENSEARCH_PASSWORD": "p",
            },
            ("http://b", "u", "p"),
        ),
        ('url = "https://u%40:p%3A@h:9200/search/"', {}, ("https://h:9200/search", "u@", "p:")),
        ('url = "https://u:p@h"\nusername = "v"\npassword = "q"', {}, ("https://h", "v", "q")),
    ],
)
def test_a_cluster(
    tmp_path: Path, text: str, environ: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    found = resolved(tmp_path, URL + SINK + text, environ).endpoints["primary"]
    revealed = [None if secret is None else secret.reveal() for secret in (found.username, found.password)]
    assert (*found.urls, *revealed) == expected


CLUSTER = URL + SINK + 'url = "http://a:1"\n'


@pytest.mark.parametrize(
    ("text", "environ", "urls"),
    [
        ('url = ["http://a:1", "http://b:2/"]', {}, ("http://a:1", "http://b:2")),
        ('url = ["http://a:1", { env = "B" }]', {"B": "http://b:2"}, ("http://a:1", "http://b:2")),
        ('url = "http://a:1, https://b:2"', {}, ("http://a:1", "https://b:2")),
        ('url = ["http://a", "http://b"]', {"PRIMARY_OPENSEARCH_URL": "http://c"}, ("http://c",)),
        ('url = "http://u:p,w@a:1"', {}, ("http://a:1",)),
        ("", {"HEADRACE_PRIMARY_OPENSEARCH_URL": "http://c,http://d"}, ("http://c", "http://d")),
        (
            'url = [{ env = "B" }, "http://a:1"]',
            {"B": "http://b:2", "PRIMARY_OPENSEARCH_URL": "http://c"},
            ("http://b:2", "http://a:1"),
        ),
    ],
)
def test_several_nodes(tmp_path: Path, text: str, environ: dict[str, str], urls: tuple[str, ...]) -> None:
    assert resolved(tmp_path, URL + SINK + text, environ).endpoints["primary"].urls == urls


def test_further_keys_of_a_cluster(tmp_path: Path) -> None:
    text = CLUSTER + 'api_key = "id:secret"\nca_file = "certs/ca.pem"\ngzip = true'
    found = resolved(tmp_path, text).endpoints["primary"]
    assert (found.ca_file, found.gzip) == (tmp_path / "certs/ca.pem", True)
    assert found.api_key is not None
    assert found.api_key.reveal() == "id:secret"
    environ = {"PRIMARY_OPENSEARCH_CA_FILE": "/x.pem", "PRIMARY_OPENSEARCH_GZIP": "FALSE"}
    found = resolved(tmp_path, text, environ).endpoints["primary"]
    assert (found.ca_file, found.gzip) == (Path("/x.pem"), False)


def test_a_password_may_have_letters_of_any_script(tmp_path: Path) -> None:
    found = resolved(tmp_path, CLUSTER + 'username = "ü"\npassword = "пароль 1"').endpoints["primary"]
    assert found.password == Secret("пароль 1")


def test_an_override_is_reported(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgres://x", "PRIMARY_OPENSEARCH_USERNAME": "u"}
    assert resolved(tmp_path, URL + SINK + 'url = "http://a"', environ).overridden == ("DATABASE_URL",)


@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ("", {}, "source.connection_url has no value. Write it into the file, or set DATABASE_URL."),
        ('connection_url = { env = "X" }', {}, "the environment variable X, which is not set. Set X."),
        ('connection_url = { env = "X" }', {"X": "secret"}, "source.connection_url is no connection string"),
        (URL + SINK, {}, "sinks.primary.url has no value"),
        (URL + SINK + 'url = "h:9200"', {}, "sinks.primary.url is no address of a cluster"),
        (URL + SINK + 'url = "http://h:x"', {}, "sinks.primary.url is no address of a cluster"),
        (URL + SINK + 'url = "http://h"\npassword = {env = "P"}', {}, "sinks.primary.password refers to"),
        (URL + SINK + 'url = ["http://h", "secret"]', {}, "sinks.primary.url is no address of a cluster"),
        (CLUSTER + 'api_key = "secret"\nusername = "u"', {}, "has a user and an api_key, each of which"),
        (
            CLUSTER + 'aws_region = "eu-west-1"',
            {"PRIMARY_OPENSEARCH_BEARER_TOKEN": "secret"},
            "a bearer_token and",
        ),
        (CLUSTER + f'tls_verify = false\nca_fingerprint = "{"a1" * 32}"', {}, "a ca_fingerprint beside"),
        (CLUSTER, {"PRIMARY_OPENSEARCH_GZIP": "secret"}, "neither true nor false"),
        (CLUSTER, {"PRIMARY_OPENSEARCH_BEARER_TOKEN": "secret\n"}, "primary.bearer_token has a line end"),
        (
            CLUSTER + 'api_key = {env = "K"}',
            {"K": "secret\u2011"},
            "primary.api_key has a line end, or another",
        ),
        (CLUSTER + 'username = "u"\npassword = "secret\\r\\n"', {}, "primary.password has a line end"),
    ],
)
def test_what_is_missing(tmp_path: Path, text: str, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ErrorGroup) as raised:
        resolved(tmp_path, text, environ)
    [error] = raised.value.errors
    assert said in str(error)
    assert "secret" not in str(error)


def test_loading_needs_no_variable_and_keeps_only_its_own(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('[source]\ntype = "postgres"\nconnection_url = { env = "X" }')
    assert load_deployment(file, {}).environment == {}
    assert set(load_deployment(file, {"X": "1", "OTHER": "2"}).environment) == {"X"}


def test_a_secret_prints_asterisks_wherever_it_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret("hunter2")
    logging.getLogger("test").warning("%s %r", secret, {"password": secret})
    shown = f"{secret} {secret:>20} {secret!r} {[secret]}" + caplog.text
    assert "hunter2" not in shown
    assert pickle.loads(pickle.dumps(secret)).reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert secret != Secret("hunter3")


def test_a_deployment_prints_no_secret_and_pickles(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[source]\ntype = "postgres"\nconnection_url = "postgres://u:hunter2@h/d"'
        + SINK
        + 'url = "http://h"\npassword = "hunter2"'
    )
    deployment = load_deployment(file, {"PRIMARY_OPENSEARCH_USERNAME": "hunter2"})
    values = resolve(deployment)
    shown = f"{deployment} {deployment!r} {deployment.model_dump_json()} {values} {values.endpoints}"
    assert "hunter2" not in shown
    assert resolve(pickle.loads(pickle.dumps(deployment))) == values


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("postgresql://u@h/d", True),
        ("host=h dbname=d", True),
        ("postgresql://u:hunter2@h/d", False),
        ("postgresql://u@h/d?password=hunter2", False),
        ("host=h password = hunter2", False),
        ("postgresql://u:hunter2@[h/d", False),
    ],
)
def test_a_suggestion_holds_no_password_and_loads(tmp_path: Path, url: str, kept: bool) -> None:
    (tmp_path / "users.schema.yml").touch()
    text = suggest_deployment(url, {"users": "users.schema.yml"}, opensearch_url="https://u:hunter2@h:9200")
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    deployment = load_deployment(file, {})
    assert "hunter2" not in text
    assert (url in text) is kept
    assert [entry.name for entry in deployment.enabled] == ["users"]
    assert 'env = "PRIMARY_OPENSEARCH_PASSWORD"' in text
