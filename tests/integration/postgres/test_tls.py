"""On a server with OpenSSL (Debian's): the one that is installed by pip knows no TLS."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import server_account
from headrace.errors import HeadraceError, Kind
from headrace.postgres import cloud_tokens
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from support.means import DEBIAN_POSTGRES, POSTGRES_15, needs
from support.metadata_server import metadata_server
from support.servers import short_lived_server

pytestmark = needs(POSTGRES_15)
SECRET = "pw-5e6c7d"
HBA = """
hostssl all certified 127.0.0.1/32 cert
host all hashed 127.0.0.1/32 md5
host all clear 127.0.0.1/32 password
host all all 127.0.0.1/32 scram-sha-256
"""
ROLES = f"""
SET password_encryption = 'md5'; CREATE ROLE hashed LOGIN REPLICATION PASSWORD '{SECRET}';
SET password_encryption = 'scram-sha-256'; CREATE ROLE clear LOGIN REPLICATION PASSWORD '{SECRET}';
CREATE ROLE certified LOGIN REPLICATION; CREATE ROLE scram LOGIN REPLICATION PASSWORD '{SECRET}'
"""


@dataclass(frozen=True)
class Secured:
    server: EmbeddedPostgres
    folder: Path

    def url(self, user: str = "scram", host: str = "127.0.0.1", password: str = SECRET, **more: str) -> str:
        words = "&".join(f"{name}={value}" for name, value in more.items())
        return f"postgresql://{user}:{password}@{host}:{self.server.port}/postgres?{words}"

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    ours = tmp_path_factory.mktemp("ours")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(ours / "ca.pem")
    stranger.cert_pem.write_to_path(ours / "stranger.pem")
    for name, ca in (("client", authority), ("foreign", stranger)):
        certificate = ca.issue_cert("me@db.example", common_name="certified")
        certificate.cert_chain_pems[0].write_to_path(ours / f"{name}.pem")
        certificate.private_key_pem.write_to_path(ours / f"{name}.key")
        (ours / f"{name}.key").chmod(0o600)
    one = short_lived_server(
        binaries=DEBIAN_POSTGRES,
        settings={
            "ssl": "on",
            **{f"ssl_{part}_file": f"tls.{part}" for part in ("cert", "key", "ca")},
            "hba_file": "tls.hba",
        },
    )
    data = one._site.data
    site = tmp_path_factory.mktemp("server")
    certificate = authority.issue_cert("db.example", "localhost")
    certificate.cert_chain_pems[0].write_to_path(site / "tls.cert")
    certificate.private_key_pem.write_to_path(site / "tls.key")
    authority.cert_pem.write_to_path(site / "tls.ca")
    (site / "tls.hba").write_text(HBA)
    one._settings.update(
        {f"ssl_{part}_file": str(data.parent / f"tls.{part}") for part in ("cert", "key", "ca")}
    )
    one._settings["hba_file"] = str(data.parent / "tls.hba")
    for file in site.iterdir():
        copied = Path(shutil.copy(file, data.parent))
        copied.chmod(0o600)
        if account := server_account():
            os.chown(copied, account.pw_uid, account.pw_gid)
    with one as server:
        with connect(server.url) as connection:
            for statement in ROLES.split(";"):
                execute(connection, statement)
        yield Secured(server, ours)


def encrypted(secured: Secured, url: str) -> list[bool]:
    """Whether the reading and the replication connection of `url` are, as the server sees them."""
    with (
        ReadSession(url) as session,
        ReplicationConnection(url) as stream,
        connect(secured.server.url) as look,
    ):
        pids = [session._connection.info.backend_pid, stream.pid]
        sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = ANY ($1) ORDER BY pid"
        return [ssl for (ssl,) in execute(look, sql, (pids,))]


def refusals(url: str) -> list[HeadraceError]:
    """What both connections say."""
    found = []
    for opening in (ReadSession, ReplicationConnection):
        with pytest.raises(HeadraceError) as caught:
            opening(url)
        assert SECRET not in f"{caught.value!s}{caught.value!r}{caught.value.__cause__!r}"
        found.append(caught.value)
    return found


@pytest.mark.parametrize(("mode", "secure"), [("require", True), ("prefer", True), ("disable", False)])
def test_both_connections_are_encrypted_as_the_url_says(secured: Secured, mode: str, secure: bool) -> None:
    """Drasi hole 8 and flusso hole 17: under `require` the log went over the wire in the clear."""
    assert encrypted(secured, secured.url(sslmode=mode)) == [secure, secure]


def test_a_certificate_is_verified_down_to_the_host_name(secured: Secured) -> None:
    ca = secured.file("ca.pem")
    full = secured.url(host="localhost", sslmode="verify-full", sslrootcert=ca)
    assert encrypted(secured, full) == [True, True]
    assert encrypted(secured, secured.url(sslmode="verify-ca", sslrootcert=ca)) == [True, True]
    for error in refusals(secured.url(sslmode="verify-full", sslrootcert=ca)):
        assert error.kind is Kind.CONFIG
        assert "host name" in error.cause or "127.0.0.1" in error.cause


def test_an_unknown_authority_is_refused_for_good(secured: Secured) -> None:
    url = secured.url(host="localhost", sslmode="verify-full", sslrootcert=secured.file("stranger.pem"))
    found = refusals(url)
    assert {error.kind for error in found} == {Kind.CONFIG}
    assert all("sslrootcert" in error.remedy and "renew" in error.remedy for error in found)
    missing = secured.url(host="localhost", sslmode="verify-full", sslrootcert=secured.file("none.pem"))
    assert {error.kind for error in refusals(missing)} == {Kind.CONFIG}


def test_an_authority_that_changes_in_a_run_is_waited_for(secured: Secured, tmp_path: Path) -> None:
    """As a volume does with which the file of the authority comes a minute behind the certificate."""
    mounted = tmp_path / "ca.pem"
    shutil.copy(secured.file("ca.pem"), mounted)
    url = secured.url(host="localhost", sslmode="verify-full", sslrootcert=str(mounted))
    assert encrypted(secured, url) == [True, True]
    shutil.copy(secured.file("stranger.pem"), mounted)
    for error in refusals(url):
        assert error.kind is Kind.CONNECTION
        assert "sslrootcert" in error.remedy
    shutil.copy(secured.file("ca.pem"), mounted)
    assert encrypted(secured, url) == [True, True]


def test_a_client_certificate_lets_in_without_a_password(secured: Secured) -> None:
    def url(name: str) -> str:
        return secured.url(
            "certified",
            sslmode="require",
            sslcert=secured.file(f"{name}.pem"),
            sslkey=secured.file(f"{name}.key"),
        )

    assert encrypted(secured, url("client")) == [True, True]
    assert {error.kind for error in refusals(url("foreign"))} == {Kind.AUTHENTICATION}
    assert {error.kind for error in refusals(secured.url("certified", sslmode="require"))} == {
        Kind.AUTHENTICATION
    }


def test_channel_binding_can_be_required_over_tls_only(secured: Secured) -> None:
    assert encrypted(secured, secured.url(sslmode="require", channel_binding="require")) == [True, True]
    for error in refusals(secured.url(sslmode="disable", channel_binding="require")):
        assert error.kind is Kind.AUTHENTICATION
        assert "channel_binding" in error.remedy


def test_a_password_goes_in_the_clear_over_verified_tls_only(secured: Secured) -> None:
    verified = {"sslmode": "verify-full", "sslrootcert": secured.file("ca.pem")}
    assert encrypted(secured, secured.url("clear", host="localhost", **verified)) == [True, True]
    for mode in ("disable", "require"):
        for error in refusals(secured.url("clear", sslmode=mode)):
            assert error.kind is Kind.AUTHENTICATION
            assert "verify-full" in error.remedy
    for error in refusals(secured.url("clear", sslmode="require", require_auth="password")):
        assert error.kind is Kind.CONFIG


def test_a_token_of_a_cloud_is_the_password_of_each_new_connection(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Azure's servers do: the token goes in the clear, so over verified TLS only."""
    tokens = iter(["first", "second"])

    def answer(_: str) -> object:
        token = next(tokens)
        with connect(secured.server.url) as admin:
            execute(admin, f"ALTER ROLE clear PASSWORD '{token}'")
        return {"access_token": token, "expires_on": int(time.time()) + 60, "resource": "r"}

    verified = secured.url(
        "clear", host="localhost", sslmode="verify-full", sslrootcert=secured.file("ca.pem")
    )
    cloud_tokens._azure_identity.cache_clear()
    try:
        with metadata_server(answer) as place:
            monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{place}/token")
            monkeypatch.setenv("IDENTITY_HEADER", "h")
            url = for_slot(verified, "orders", ["iam:azure"])
            for opening in (ReadSession, ReplicationConnection):
                opening(url).close()
        assert next(tokens, None) is None
    finally:
        cloud_tokens._azure_identity.cache_clear()
        with connect(secured.server.url) as admin:
            execute(admin, f"ALTER ROLE clear PASSWORD '{SECRET}'")


def test_md5_is_refused_until_the_user_names_it(secured: Secured) -> None:
    for error in refusals(secured.url("hashed", sslmode="require")):
        assert error.kind is Kind.AUTHENTICATION
        assert "scram-sha-256" in error.remedy
        assert "require_auth=md5" in error.remedy
    assert encrypted(secured, secured.url("hashed", sslmode="require", require_auth="md5")) == [True, True]
