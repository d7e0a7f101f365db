"""Where tokens come from, and which are refused before anything listens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.config.load import load_deployment
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.control.tokens import Tokens, read_tokens

GOOD = "0123456789abcdef"
OTHER = "fedcba9876543210"


def tokens(folder: Path, *entries: str, **environ: str) -> Tokens:
    """The tokens of a deployment file with these entries."""
    file = folder / "headrace.toml"
    text = "".join(f"[[control.tokens]]\n{entry}\n" for entry in entries)
    file.write_text(f'[source]\ntype = "postgres"\n{text}')
    return read_tokens(load_deployment(file, environ))


def refused(folder: Path, *entries: str, **environ: str) -> str:
    with pytest.raises(HeadraceError) as caught:
        tokens(folder, *entries, **environ)
    assert GOOD not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_tokens_come_from_a_file_the_environment_and_a_command(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{GOOD}\n")
    found = tokens(
        tmp_path,
        'name = "ada"\nscope = "operate"\ntoken_file = "token"',
        'name = "bob"\ntoken_env = "BOB"',
        f"name = \"ci\"\ntoken_command = ['{sys.executable}', '-c', 'print(\"c\" * 20)']",
        BOB=OTHER,
    )
    holders = [found.find(token) for token in (GOOD, OTHER, "c" * 20)]
    assert [(holder.name, holder.scope) for holder in holders if holder] == [
        ("ada", "operate"),
        ("bob", "read"),
        ("ci", "read"),
    ]


@pytest.mark.parametrize("given", ["", GOOD[:-1], GOOD + "0", GOOD.upper(), "é" * 16])
def test_nothing_else_is_a_token(given: str, tmp_path: Path) -> None:
    assert tokens(tmp_path, 'name = "bob"\ntoken_env = "BOB"', BOB=GOOD).find(given) is None


def test_without_a_token_the_private_address_is_not_served(tmp_path: Path) -> None:
    assert "has no token" in refused(tmp_path)


@pytest.mark.parametrize("token", ["qwerty", "x" * 15, "with a blank in it", f"{GOOD}\n{GOOD}", "é" * 16])
def test_a_token_that_is_short_or_cannot_be_sent_is_refused(token: str, tmp_path: Path) -> None:
    text = refused(tmp_path, 'name = "bob"\ntoken_env = "BOB"', BOB=token)
    assert "'bob'" in text
    assert token not in text


def test_a_token_of_two_is_refused(tmp_path: Path) -> None:
    entries = ['name = "ada"\ntoken_env = "A"', 'name = "bob"\ntoken_env = "B"']
    assert "is also the token of 'ada'" in refused(tmp_path, *entries, A=GOOD, B=GOOD)


def test_everything_that_cannot_be_read_is_told_at_once_each_in_one_line(tmp_path: Path) -> None:
    text = refused(
        tmp_path,
        'name = "ada"\ntoken_file = "none"',
        'name = "bob"\ntoken_env = "NONE"',
        'name = "ci"\ntoken_file = "."',
    )
    assert len(text.splitlines()) == 3
    for part in ("the token file of 'ada'", "NONE, which is not set", "the token file of 'ci'"):
        assert part in text


def test_a_command_that_fails_is_named_and_what_it_printed_is_not(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        tokens(tmp_path, 'name = "ci"\ntoken_command = ["sh", "-c", "echo 0123456789abcdef; exit 3"]')
    assert "the token command 'sh' ended with exit code 3" in str(caught.value)
    assert GOOD not in str(caught.value)
    assert caught.value.kind is Kind.PASSWORD_COMMAND
