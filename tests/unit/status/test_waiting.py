"""What `/wait` takes, what it refuses, and what it answers."""

import pytest

from headrace.status.waiting import WaitProgress, WaitRequest, answer_body, parse_request


@pytest.mark.parametrize(
    ("parameters", "asked"),
    [
        ({}, WaitRequest(None, 60.0, searchable=False)),
        ({"lsn": "16/B374D848"}, WaitRequest(0x16B374D848)),
        ({"timeout": "0.5", "searchable": "true"}, WaitRequest(None, 0.5, searchable=True)),
        ({"searchable": ""}, WaitRequest(searchable=True)),
        ({"searchable": "FALSE"}, WaitRequest()),
    ],
)
def test_what_can_be_asked(parameters: dict[str, str], asked: WaitRequest) -> None:
    assert parse_request(parameters) == asked


@pytest.mark.parametrize(
    "parameters",
    [
        {"lsn": "12"},
        {"lsn": ""},
        {"timeout": "301"},
        {"timeout": "0"},
        {"timeout": "-1"},
        {"timeout": "nan"},
        {"timeout": "soon"},
        {"searchable": "maybe"},
    ],
)
def test_what_cannot_be_read_is_refused_by_name(parameters: dict[str, str]) -> None:
    [value] = parameters.values()
    with pytest.raises(ValueError, match=value or "LSN"):
        parse_request(parameters)


def test_a_word_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="'lns' is not known here; known are lsn, timeout, searchable"):
        parse_request({"lns": "0/1"})


def test_the_answer_says_how_far_it_is() -> None:
    found = answer_body(WaitProgress(0x200, 0x180, "the cluster is away", done=False), 1.23456)
    assert found == {
        "done": False,
        "lsn": "0/200",
        "applied": "0/180",
        "behind_bytes": 128,
        "seconds": 1.235,
        "error": "the cluster is away",
    }
    assert answer_body(WaitProgress(), 0.0)["behind_bytes"] is None
