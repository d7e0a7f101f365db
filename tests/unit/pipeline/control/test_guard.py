"""Whose requests are looked at: by the name that they ask for, and by their wrong tokens."""

from __future__ import annotations

import pytest

from headrace.pipeline.control.guard import FailedTokens
from headrace.status.protection import allows_host, is_loopback, leads_nowhere_else


@pytest.mark.parametrize(
    ("given", "address", "allowed", "expected"),
    [
        ("127.0.0.1:9465", "127.0.0.1:9465", (), True),
        ("localhost:9465", "127.0.0.1:9465", (), True),
        ("[::1]:9465", "[::1]:9465", (), True),
        ("LocalHost:9465", "0.0.0.0:9465", (), True),
        ("localhost:9466", "127.0.0.1:9465", (), False),
        ("127.0.0.1", "127.0.0.1:9465", (), False),
        ("192.0.2.1:9465", "192.0.2.1:9465", (), True),
        ("localhost:9465", "192.0.2.1:9465", (), False),
        ("192.0.2.1:9465", "0.0.0.0:9465", (), False),
        ("", "127.0.0.1:9465", (), False),
        ("", "127.0.0.1:9465", ("a",), False),
        ("a.example:1", "127.0.0.1:9465", ("A.example",), True),
        ("a.example:1", "127.0.0.1:9465", ("a.example:2",), False),
        ("a.example", "127.0.0.1:9465", ("a.example:2",), False),
        ("a.example.evil", "127.0.0.1:9465", ("a.example",), False),
        ("evil.a.example:1", "127.0.0.1:9465", ("a.example",), False),
    ],
)
def test_a_host_is_the_address_itself_or_allowed(
    given: str, address: str, allowed: tuple[str, ...], expected: bool
) -> None:
    assert allows_host(given, address, allowed) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("192.0.2.1:9464", True),
        ("[2001:db8::1]:9464", True),
        ("[::1]", True),
        ("LOCALHOST:80", True),
        ("", False),
        (":80", False),
        ("localhost.example", False),
        ("192.0.2.1.example:9464", False),
        ("192.0.2.1:9464:1", False),
        ("[192.0.2.1.example]", False),
        ("192.0.2.1@evil.example", False),
        ("1234", False),
        ("headrace", False),
    ],
)
def test_only_figures_and_localhost_lead_nowhere_else(host: str, expected: bool) -> None:
    assert leads_nowhere_else(host) is expected


def test_what_is_of_this_machine_alone_is_known() -> None:
    addresses = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "0.0.0.0:1", "[::]:1", "a.example:1"]
    assert [is_loopback(address) for address in addresses] == [True] * 4 + [False] * 3


def test_ten_wrong_tokens_of_a_client_in_a_minute_close_it_until_the_minute_is_over() -> None:
    now = 100.0
    failed = FailedTokens(lambda: now)
    for _ in range(9):
        failed.add("a")
    assert failed.seconds_left("a") == 0
    now = 130.0
    failed.add("a")
    assert (failed.seconds_left("a"), failed.seconds_left("b")) == (30.0, 0.0)
    now = 160.0
    assert failed.seconds_left("a") == 0
    failed.add("a")
    assert failed.seconds_left("a") == 0


def test_the_memory_of_clients_is_bounded() -> None:
    failed = FailedTokens(lambda: 0.0)
    for number in range(5000):
        failed.add(str(number))
    assert len(failed._clients) == 1024
