"""Ways to log in to a cluster: each is checked by a proxy before it, as security plugins and clouds do."""

from __future__ import annotations

import datetime as dt
import hashlib
import ssl
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import Client, Endpoint, Generations, OpenSearchWriter, signing
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import count, refresh
from headrace.state.system_index import SystemIndex, entries_by_id
from integration.sinks.scripted_server import scripted
from support.aws_signature import is_signed, mismatch
from support.http_proxy import Answer, HttpProxy, Request
from support.metadata_server import metadata_server

REGION = "eu-central-1"
BODY = {"settings": {"index": {}}, "mappings": {"properties": {"n": {"type": "long"}}}}


class Domain(HttpProxy):
    """A domain that takes signed requests only, as those of Amazon OpenSearch Service do."""

    def __init__(self, target: str) -> None:
        super().__init__(target, spoil=self._judge)
        self.secrets: dict[str, tuple[str, str | None]] = {}
        self.refused = 0

    def _judge(self, request: Request) -> Answer | None:
        if is_signed(
            request.method,
            request.target,
            request.headers,
            request.body,
            secrets=self.secrets,
            place=f"{REGION}/es",
        ):
            return None
        self.refused += 1
        return Answer(403, mismatch(request.method, request.target, request.headers, request.body))


@pytest.fixture
def domain(opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Domain]:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    signing._credentials.cache_clear()
    with Domain(opensearch.url) as front:
        yield front
    signing._credentials.cache_clear()


@pytest.mark.parametrize("gzip", [False, True])
def test_a_domain_takes_what_is_signed_whatever_the_ids_and_names(
    domain: Domain, monkeypatch: pytest.MonkeyPatch, gzip: bool
) -> None:
    domain.secrets["AKIDHERE"] = ("s3cret/key", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDHERE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret/key")
    with closing(Client(Endpoint((domain.url,), aws_region=REGION, gzip=gzip))) as client:
        client.wait_until_ready(30)
        generations = Generations(client, f"signed{uuid.uuid4().hex[:8]}_")
        made = generations.create("things", "ab", BODY)
        ids = ["a b", "x/y%z+", "日本", "a,b*", "~!'()"]
        writer = OpenSearchWriter(client, {"things": made.target})
        with closing(writer):
            result = writer.write([DocumentOperation("things", name, 1, b'{"n": 1}') for name in ids])
        refresh(client, made.index)
        assert (result.upserted, count(client, made.index)) == (len(ids), len(ids))
        generations.drop(made)
        entries = SystemIndex(client, f"{made.index}_entries", {"version": {"type": "long"}})
        entries.ensure()
        entries.write([("index", {"_id": name}, {"version": 1}) for name in ids])
        assert [entry["_id"] for entry in entries_by_id(client, entries.name, ids)] == ids
        assert len(entries.oldest({"match_all": {}}, 10)) == entries.count({"match_all": {}}) == len(ids)
        client.call("DELETE", path(entries.name))
    assert domain.refused == 0


def test_a_domain_refuses_another_key_and_the_error_shows_none(
    domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS's answer quotes the token of a role."""
    domain.secrets["AKIDHERE"] = ("right", "t0ken")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDHERE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wr0ng")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t0ken")
    with (
        closing(Client(Endpoint((domain.url,), aws_region=REGION))) as client,
        pytest.raises(HeadraceError, match="request signature") as caught,
    ):
        client.wait_until_ready(5)
    assert caught.value.kind is Kind.AUTHENTICATION
    shown = f"{caught.value!r}{caught.value.detail}{client.endpoint!r}"
    assert all(secret not in shown for secret in ("wr0ng", "t0ken", "AKIDHERE"))


def test_credentials_that_end_are_renewed_under_a_client(
    domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of a pod or a task: its keys end, and the domain takes the old ones no longer."""
    given: list[str] = []

    def role(_: str) -> object:
        access = f"AKID{len(given)}"
        given.append(access)
        # So near its end that it is renewed before the next request.
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)
        domain.secrets = {access: (f"secret of {access}", f"token-of-{access}")}
        return {
            "AccessKeyId": access,
            "SecretAccessKey": f"secret of {access}",
            "Token": f"token-of-{access}",
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    with metadata_server(role) as place:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{place}/role")
        with closing(Client(Endpoint((domain.url,), aws_region=REGION))) as client:
            client.wait_until_ready(30)
            before = len(given)
            client.read("/")
            client.read("/")
    assert len(given) >= before + 2
    assert domain.refused == 0


def test_elastics_serverless_is_refused_by_name() -> None:
    about = (
        b'{"version": {"number": "8.11.0", "build_flavor": "serverless"}, "tagline": "You Know, for Search"}'
    )
    with (
        scripted(lambda _: (200, about)) as server,
        closing(Client(Endpoint((server.url,)))) as client,
        pytest.raises(HeadraceError, match="Elastic Cloud Serverless, which lets nobody ask") as caught,
    ):
        client.product()
    assert caught.value.kind is Kind.SINK_REJECTED


class Keys:
    """A cluster's authority with a certificate of the cluster and one of a user, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.folder = folder
        self.authority.cert_pem.write_to_path(folder / "ca.pem")
        user = self.authority.issue_cert("me@example.org", common_name="headrace")
        user.cert_chain_pems[0].write_to_path(folder / "user.pem")
        user.private_key_pem.write_to_path(folder / "user.key")
        user.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")

    def context(self, *, sent: trustme.CA | None = None, users: bool = False) -> ssl.SSLContext:
        """Return what a server with a certificate of the authority shows.

        Args:
            sent: an authority whose certificate is sent with the server's own.
            users: whether it asks for a certificate of a user.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued = self.authority.issue_cert("127.0.0.1")
        chain = [issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()]
        if sent is not None:
            chain.append(sent.cert_pem.bytes())
        (self.folder / "server.pem").write_bytes(b"".join(chain))
        context.load_cert_chain(self.folder / "server.pem")
        if users:
            context.load_verify_locations(self.folder / "ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def fingerprint_of(authority: trustme.CA) -> str:
    certificate = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.mark.parametrize(("cert", "key"), [("user.pem", "user.key"), ("both.pem", None)])
def test_a_client_certificate_lets_in(
    opensearch: EmbeddedOpenSearch, keys: Keys, cert: str, key: str | None
) -> None:
    with HttpProxy(opensearch.url, tls=keys.context(users=True)) as front:
        shown = Endpoint(
            (front.url,),
            ca_file=keys.folder / "ca.pem",
            client_cert=keys.folder / cert,
            client_key=keys.folder / key if key else None,
        )
        with closing(Client(shown)) as client:
            assert client.wait_until_ready(10)
        front.requests.clear()
        without = Client(Endpoint((front.url,), ca_file=keys.folder / "ca.pem"), read_attempts=1)
        with closing(without) as client, pytest.raises(HeadraceError):
            client.read("/")
        assert list(front.requests) == []


@pytest.mark.parametrize("name", ["ca.pem", "absent.pem"])
def test_a_client_certificate_that_cannot_be_used_is_told_before_anything_is_sent(
    keys: Keys, name: str
) -> None:
    with pytest.raises(HeadraceError, match=rf"the client_cert .*{name}") as caught:
        Client(Endpoint(("https://h:1",), client_cert=keys.folder / name))
    assert caught.value.kind is Kind.CONFIG


def test_a_fingerprint_trusts_its_authority_alone(opensearch: EmbeddedOpenSearch, keys: Keys) -> None:
    right = fingerprint_of(keys.authority)
    with HttpProxy(opensearch.url, tls=keys.context(sent=keys.authority)) as front:
        with closing(Client(Endpoint((front.url,), ca_fingerprint=right))) as client:
            assert client.wait_until_ready(10)
        front.requests.clear()
        with (
            closing(Client(Endpoint((front.url,), ca_fingerprint="0" * 64))) as client,
            pytest.raises(HeadraceError, match="has the ca_fingerprint") as caught,
        ):
            client.wait_until_ready(10)
        assert (caught.value.kind, list(front.requests)) == (Kind.AUTHENTICATION, [])


def test_a_stranger_who_shows_the_authoritys_certificate_is_not_trusted(
    opensearch: EmbeddedOpenSearch, keys: Keys
) -> None:
    """The certificate of an authority is no secret: what counts is whom it issued one to."""
    authority = trustme.CA()
    with HttpProxy(opensearch.url, tls=keys.context(sent=authority)) as front:
        endpoint = Endpoint((front.url,), "me", "hunter2", ca_fingerprint=fingerprint_of(authority))
        with closing(Client(endpoint)) as client, pytest.raises(HeadraceError, match="not trusted") as caught:
            client.wait_until_ready(10)
        assert (caught.value.kind, list(front.requests)) == (Kind.AUTHENTICATION, [])
