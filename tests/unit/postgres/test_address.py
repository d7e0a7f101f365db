from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.errors import HeadraceError, Kind
from headrace.postgres.address import application_name, for_slot, parse_address, stream_name
from headrace.postgres.connection import place, with_defaults


def parameters(url: str) -> dict[str, object]:
    return dict(conninfo_to_dict(with_defaults(url)))


def test_a_url_is_percent_decoded() -> None:
    """Flusso hole 17: passwords were used as they stood in the URL."""
    found = parse_address("postgresql://m%40e:p%40%2F%25%27ss@h:1/a%20b").parameters
    assert (found["user"], found["password"], found["dbname"]) == ("m@e", "p@/%'ss", "a b")


def test_a_password_injects_nothing() -> None:
    """Drasi hole 8: a password with a blank in it went on as further parameters."""
    evil = "x' host=evil sslmode=disable password='y\\"
    url = for_slot("postgresql://u@db/x?password=" + evil.replace(" ", "%20").replace("=", "%3D"), "s")
    found = parameters(url)
    assert (found["host"], found["password"]) == ("db", evil)
    assert "sslmode" not in found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:pa@secret@h/db",
        "postgresql://u:pa/secret@h/db",
        "postgresql://u:pa%secret@h/db",
        "host=h password='secret",
        "host=h secret",
        "postgresql://u@h:secret/db",
    ],
)
def test_a_string_that_cannot_be_parsed_is_not_shown(url: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        with_defaults(url)
    assert caught.value.kind is Kind.CONFIG
    assert "secret" not in f"{caught.value}{caught.value.__cause__!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_jdbc_url_is_translated() -> None:
    found = parameters(
        "jdbc:postgresql://a:1,[::1]:2/my%20db?user=me&password=p%26w&ssl=true&targetServerType=primary"
        "&ApplicationName=x&prepareThreshold=0&channelBinding=require"
    )
    assert found["host"] == "a,::1"
    assert found["port"] == "1,2"
    assert (found["dbname"], found["user"], found["password"]) == ("my db", "me", "p&w")
    assert (found["sslmode"], found["target_session_attrs"]) == ("verify-full", "primary")
    assert found["channel_binding"] == "require"
    assert parameters("jdbc:postgresql:shop?sslmode=disable&ssl=true")["sslmode"] == "disable"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("jdbc:postgresql://h/db?passwrod=hush", "'passwrod'"),
        ("jdbc:postgresql://h/db?targetServerType=hush", "targetServerType"),
        ("jdbc:postgresql://me:hush@h/db", "before the host"),
    ],
)
def test_what_a_jdbc_url_cannot_say_is_named(url: str, named: str) -> None:
    with pytest.raises(HeadraceError, match=named) as caught:
        parse_address(url)
    assert "hush" not in str(caught.value)


def test_of_several_hosts_it_is_the_primary() -> None:
    """With another choice the stream could come from one server and the reads from the next."""
    assert parameters("postgresql://a,b/db")["target_session_attrs"] == "primary"
    assert parameters("host=a,b target_session_attrs=read-write")["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in parameters("postgresql://a/db")
    with pytest.raises(HeadraceError, match="another server"):
        with_defaults("postgresql://a,b/db?target_session_attrs=any")


def test_a_deployments_string_names_its_connections_and_keeps_everything_else() -> None:
    for url in (
        "postgresql://u:p%40@a:1,b:2/db?sslmode=require",
        "host=a,b port=1,2 user=u password=p@ dbname=db",
    ):
        told = for_slot(url, "orders", ("token", "--for", "a b"))
        found = parse_address(told)
        assert found.command == ("token", "--for", "a b")
        assert found.parameters["application_name"] == "headrace/orders"
        assert found.parameters["password"] == "p@"
        assert place(told) == "a:1,b:2/db"
        assert for_slot(told, "orders") == told
    assert place("postgresql://a,b:2/db") == "a:5432,b:2/db"


def test_the_names_of_a_long_slot_and_its_stream_differ_and_fit_the_server() -> None:
    slot = "s" * 63
    assert application_name(slot) in for_slot("postgresql://a/db", slot).replace("%2F", "/")
    assert (len(application_name(slot)), len(stream_name(slot))) == (63, 63)
    assert application_name(slot) != stream_name(slot)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "!md5,!password"),
        ("sslmode=require", "!md5,!password"),
        ("sslmode=verify-ca", "!md5"),
        ("sslmode=verify-full", "!md5"),
        ("sslrootcert=system", "!md5"),
        ("require_auth=md5,scram-sha-256", "md5,scram-sha-256"),
        ("require_auth=!gss", "!gss,!md5,!password"),
        ("require_auth=!md5", "!md5,!password"),
        ("require_auth=password sslmode=verify-ca", "password"),
    ],
)
def test_weak_methods_are_forbidden_before_anything_is_sent(words: str, expected: str) -> None:
    assert parameters(f"host=h {words}")["require_auth"] == expected


def test_the_environment_counts_as_in_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    found = parameters("host=h")
    assert found["require_auth"] == "!md5"
    assert "connect_timeout" not in found
    assert "sslmode" not in found
