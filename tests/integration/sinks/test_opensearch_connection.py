"""How the sink gets into a real cluster: over TLS, with what it is let in by, past nodes that are away."""

from __future__ import annotations

import base64
import datetime as dt
import ssl
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from headrace.config.deployment import OpenSearchSink
from headrace.config.load import load_deployment
from headrace.config.resolve import resolve
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.pipeline.sink_target import cluster_endpoint
from headrace.sinks.opensearch import Client, Endpoint, Generation, Generations, OpenSearchWriter
from headrace.sinks.opensearch.documents import count, refresh
from support.http_proxy import Answer, HttpProxy
from support.tcp_proxy import TcpProxy

BODY: dict[str, Any] = {"settings": {"index": {}}, "mappings": {"properties": {"n": {"type": "long"}}}}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def context_of(authority: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return context


@pytest.fixture
def secured(opensearch: EmbeddedOpenSearch, authority: trustme.CA) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url, tls=context_of(authority, "127.0.0.1")) as front:
        yield front


def client_of(folder: Path, sink: str, environ: dict[str, str] | None = None) -> Client:
    """As a deployment file makes it."""
    file = folder / "headrace.toml"
    file.write_text(
        '[source]\ntype = "postgres"\nconnection_url = "postgresql://u@h/d"\n'
        f'[sinks.main]\ntype = "opensearch"\n{sink}\n'
    )
    deployment = load_deployment(file, environ or {})
    declared = deployment.sinks["main"]
    assert isinstance(declared, OpenSearchSink)
    return Client(cluster_endpoint(resolve(deployment), "main", declared))


def write_bundle(folder: Path, authority: trustme.CA) -> str:
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return "ca.pem"


def test_the_authority_that_the_file_names_is_trusted(
    tmp_path: Path, secured: HttpProxy, authority: trustme.CA
) -> None:
    """Its path counts from the deployment file's folder."""
    write_bundle(tmp_path, authority)
    client = client_of(tmp_path, f'url = "{secured.url}"\nca_file = "ca.pem"')
    assert client.wait_until_ready(10)


def test_another_authority_is_not(tmp_path: Path, secured: HttpProxy) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    client = client_of(tmp_path, f'url = "{secured.url}"\nca_file = "ca.pem"\npassword = "hunter2"')
    with pytest.raises(HeadraceError, match="not trusted") as caught:
        client.wait_until_ready(10)
    assert caught.value.kind is Kind.AUTHENTICATION
    assert "ca_file" in caught.value.remedy
    assert list(secured.requests) == []


def test_a_certificate_for_another_name_is_refused(
    tmp_path: Path, opensearch: EmbeddedOpenSearch, authority: trustme.CA
) -> None:
    write_bundle(tmp_path, authority)
    with HttpProxy(opensearch.url, tls=context_of(authority, "search.example")) as front:
        client = client_of(tmp_path, f'url = "{front.url}"\nca_file = "ca.pem"')
        with pytest.raises(HeadraceError, match=r"not trusted: .*127\.0\.0\.1") as caught:
            client.wait_until_ready(10)
        assert "host name" in caught.value.remedy
        assert list(front.requests) == []


def test_certificates_and_authorities_may_change_under_a_client_and_an_expired_one_is_told(
    tmp_path: Path, opensearch: EmbeddedOpenSearch, authority: trustme.CA
) -> None:
    """The file of authorities is read at each connection."""
    write_bundle(tmp_path, authority)
    context, other = context_of(authority, "127.0.0.1"), trustme.CA()
    with HttpProxy(opensearch.url, tls=context) as front:
        client = client_of(tmp_path, f'url = "{front.url}"\nca_file = "ca.pem"')
        client.wait_until_ready(10)
        for ca in (authority, other):
            ca.issue_cert("127.0.0.1").configure_cert(context)
            write_bundle(tmp_path, ca)
            client.close()
            client.wait_until_ready(10)
        long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        expired = other.issue_cert("127.0.0.1", not_before=long_ago, not_after=long_ago + dt.timedelta(1))
        expired.configure_cert(context)
        client.close()
        with pytest.raises(HeadraceError, match=r"not trusted: .*expired") as caught:
            client.wait_until_ready(0.1)
        assert "Renew" in caught.value.remedy
        assert "ca_file" not in caught.value.remedy


def test_a_certificate_that_is_renewed_is_waited_for_where_the_cluster_was_trusted_before(
    tmp_path: Path, opensearch: EmbeddedOpenSearch, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has its new certificate some seconds before this machine has the file of its authority."""
    write_bundle(tmp_path, authority)
    context, other = context_of(authority, "127.0.0.1"), trustme.CA()
    with HttpProxy(opensearch.url, tls=context) as front:
        client = client_of(tmp_path, f'url = "{front.url}"\nca_file = "ca.pem"')
        client.call("GET", "/")
        other.issue_cert("127.0.0.1").configure_cert(context)
        client.close()
        with pytest.raises(HeadraceError, match=r"not trusted: .*trusted before") as caught:
            client.call("GET", "/")
        assert caught.value.kind is Kind.SINK_BUSY
        assert "ca_file" in caught.value.remedy
        write_bundle(tmp_path, other)
        client.call("GET", "/")
        write_bundle(tmp_path, authority)
        client.close()
        monkeypatch.setattr("headrace.sinks.opensearch.client._REFUSED_SECONDS", -1.0)
        with pytest.raises(HeadraceError, match="not trusted") as caught:
            client.call("GET", "/")
        assert caught.value.kind is Kind.AUTHENTICATION


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_certificates_that_is_none_is_told(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(HeadraceError, match=r"the ca_file .*ca\.pem") as caught:
        client_of(tmp_path, 'url = "https://h:1"\nca_file = "ca.pem"')
    assert caught.value.kind is Kind.CONFIG


@pytest.mark.parametrize(
    ("sink", "variable", "expected"),
    [
        ('username = "u"\npassword = "p:w"', "X", "Basic " + base64.b64encode(b"u:p:w").decode()),
        ('api_key = "id:secret"', "X", "ApiKey " + base64.b64encode(b"id:secret").decode()),
        ('api_key = { env = "K" }', "K", "ApiKey aWQ6c2VjcmV0"),
        ('bearer_token = "aWQ6c2VjcmV0"', "X", "Bearer aWQ6c2VjcmV0"),
        ("", "MAIN_OPENSEARCH_BEARER_TOKEN", "Bearer aWQ6c2VjcmV0"),
        ("", "MAIN_OPENSEARCH_API_KEY", "ApiKey aWQ6c2VjcmV0"),
        ("", "HEADRACE_MAIN_OPENSEARCH_API_KEY", "ApiKey aWQ6c2VjcmV0"),
    ],
)
def test_who_is_asking_is_told(
    tmp_path: Path, secured: HttpProxy, sink: str, variable: str, expected: str
) -> None:
    environ = {variable: "aWQ6c2VjcmV0"}
    client = client_of(tmp_path, f'url = "{secured.url}"\ntls_verify = false\n{sink}', environ)
    client.wait_until_ready(10)
    assert {one.headers["authorization"] for one in secured.requests} == {expected}
    assert "secret" not in repr(client.endpoint)
    assert "aWQ6" not in repr(client.endpoint)


def test_compression_can_be_asked_for(tmp_path: Path, opensearch: EmbeddedOpenSearch) -> None:
    name = f"c{uuid.uuid4().hex[:8]}"
    with HttpProxy(opensearch.url) as front:
        client = client_of(tmp_path, f'url = "{front.url}"', {"MAIN_OPENSEARCH_GZIP": "true"})
        client.call("PUT", f"/{name}", BODY)
        client.call("DELETE", f"/{name}")
        assert front.requests[0].headers["content-encoding"] == "gzip"


@pytest.fixture
def generations(opensearch: EmbeddedOpenSearch) -> Iterator[Generations]:
    client = Client(Endpoint((opensearch.url,)))
    yield Generations(client, f"n{uuid.uuid4().hex[:8]}_")
    client.close()


@pytest.fixture
def users(generations: Generations) -> Iterator[Generation]:
    one = generations.create("users", "ab", BODY)
    yield one
    generations.drop(one)


def test_of_two_nodes_one_dies_in_the_middle(opensearch: EmbeddedOpenSearch, users: Generation) -> None:
    """The bulk that was under way is told as unanswered; whoever sends anew reaches the other node."""
    with TcpProxy.before(opensearch.url) as one, TcpProxy.before(opensearch.url) as other:
        urls = (one.url(opensearch.url), other.url(opensearch.url))
        client = Client(Endpoint(urls, timeout=30))
        writer = OpenSearchWriter(client, {"users": users.target})
        operations = [DocumentOperation("users", str(n), 1, b'{"n":1}') for n in range(3_000)]
        assert writer.write(operations[:1]).upserted == 1
        assert other.accepted == 0
        one.freeze()
        killer = threading.Timer(0.3, one.refuse)
        killer.start()
        with pytest.raises(HeadraceError) as caught:
            writer.write(operations)
        assert caught.value.kind is Kind.SINK_UNREACHABLE
        assert writer.write(operations).upserted == 3_000
        assert other.accepted > 0
        writer.close()
        refresh(client, users.index)
        assert count(client, users.index) == 3_000
        client.close()


def test_a_node_that_is_ill_alone_is_left(opensearch: EmbeddedOpenSearch, users: Generation) -> None:
    """What it refuses is sent to the other."""
    with HttpProxy(opensearch.url, spoil=lambda _: Answer(503)) as ill:
        client = Client(Endpoint((ill.url, opensearch.url)))
        writer = OpenSearchWriter(client, {"users": users.target})
        assert writer.write([DocumentOperation("users", "1", 1, b'{"n":1}')]).upserted == 1
        writer.close()
        assert len(ill.requests) == 1


def test_clients_may_begin_with_different_nodes(opensearch: EmbeddedOpenSearch) -> None:
    with HttpProxy(opensearch.url) as one, HttpProxy(opensearch.url) as other:
        for first in range(4):
            Client(Endpoint((one.url, other.url)), first=first).read("/")
        assert (len(one.requests), len(other.requests)) == (2, 2)
