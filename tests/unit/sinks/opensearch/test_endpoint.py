"""Addresses and credentials."""

from __future__ import annotations

import pickle

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Endpoint
from headrace.sinks.opensearch.client import path


def test_credentials_leave_the_url_decoded() -> None:
    found = Endpoint(("https://me:p%40ss@host:9200/",)).normalised()
    assert found.urls == ("https://host:9200",)
    assert (found.username, found.password) == ("me", "p@ss")


def test_named_credentials_win_over_the_url() -> None:
    found = Endpoint(("https://me:one@host",), username="you", password="two").normalised()
    assert (found.username, found.password) == ("you", "two")


def test_a_path_before_the_cluster_is_kept() -> None:
    assert Endpoint(("https://host/search/",)).normalised().urls == ("https://host/search",)


@pytest.mark.parametrize("url", ["host:9200", "ftp://host", "http://", "http://host?x=1", ""])
def test_another_form_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        Endpoint((url,)).normalised()
    assert caught.value.kind is Kind.CONFIG


def test_no_url_is_refused() -> None:
    with pytest.raises(HeadraceError, match="no URL"):
        Endpoint(()).normalised()


def test_the_password_is_not_shown_and_survives_pickling() -> None:
    endpoint = Endpoint(("http://h",), username="u", password="secret")
    assert "secret" not in repr(endpoint)
    assert pickle.loads(pickle.dumps(endpoint)).password == "secret"


def test_parts_of_a_path_are_escaped() -> None:
    assert path("a", "_doc", "x/y z?", query={"routing": "é"}) == "/a/_doc/x%2Fy%20z%3F?routing=%C3%A9"
