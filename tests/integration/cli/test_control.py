"""What a run says where its private address, or a token, is not as it must be."""

from __future__ import annotations

import socket

import pytest

from integration.cli.command_line import Deployment

TOKEN = "0123456789abcdef"


def test_a_run_without_tokens_serves_no_private_address(people: Deployment) -> None:
    text = people.type("run", "--private-address", "127.0.0.1:0").refused(2, "CONFIG")
    assert "the private address has no token" in text


def test_a_run_says_in_one_line_why_it_cannot_serve_it(people: Deployment) -> None:
    people.more = '[[control.tokens]]\nname = "ada"\ntoken_file = "ada.token"'
    people.write()
    text = people.type("run", "--private-address", "127.0.0.1:0").refused(2, "CONFIG")
    assert "the token file of 'ada' cannot be read: No such file or directory" in text
    people.secrets.append("short0123")
    (people.folder / "ada.token").write_text("short0123")
    text = people.type("run", "--private-address", "127.0.0.1:0").refused(2, "CONFIG")
    assert "the token of 'ada' has fewer than 16 characters" in text
    (people.folder / "ada.token").write_text(TOKEN)
    people.secrets.append(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = people.type("run", "--private-address", address).refused(1, "PORT_IN_USE")
    assert f"the private address {address} is taken by another process" in text


@pytest.mark.long
def test_a_file_with_an_address_and_no_token_is_a_deployment_as_before(people: Deployment) -> None:
    """Files of other tools name an address."""
    people.more = '[server]\nprivate_address = "127.0.0.1:9465"'
    people.write()
    text = people.type("run").refused(1, "SINK_UNREACHABLE")
    assert "private" not in text


def test_a_pause_through_the_cluster_needs_one(people: Deployment) -> None:
    assert people.type("pause").refused(1, "SINK_UNREACHABLE")
