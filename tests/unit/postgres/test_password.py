from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres.password import run_password_command, split_command


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_command_answers_with_its_line() -> None:
    assert run_password_command(python("print('to ken $HOME')")) == "to ken $HOME"
    assert split_command("token --for 'a b'") == ("token", "--for", "a b")
    assert split_command('["token", "a b"]') == ("token", "a b")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('hush'); sys.exit('first\\nno ticket')", "exit code 1: no ticket"),
        ("pass", "printed nothing"),
        ("print('hush'); print('hush')", "more than one line"),
        ("import time; print('hush', flush=True); time.sleep(30)", "within 0.5 s"),
    ],
)
def test_a_failure_is_told_without_what_was_printed_and_tried_again(program: str, said: str) -> None:
    with pytest.raises(HeadraceError, match=said) as caught:
        run_password_command(python(program), seconds=0.5)
    assert (caught.value.kind, caught.value.retry) == (Kind.PASSWORD_COMMAND, Retry.BACK_OFF)
    assert "hush" not in f"{caught.value}{caught.value.__cause__!r}{caught.value.__context__!r}".replace(
        repr(program), ""
    )


def test_a_command_that_is_being_replaced_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "token"
    with program.open("wb") as replaced:
        program.chmod(0o755)
        replaced.write(b"\x7fELF")
        replaced.flush()
        with pytest.raises(HeadraceError, match="could not be started: Text file busy") as caught:
            run_password_command([str(program)])
    assert caught.value.kind is Kind.PASSWORD_COMMAND


def test_a_command_that_does_not_exist_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(HeadraceError, match="cannot be started") as caught:
        run_password_command(["/nowhere/token"])
    assert caught.value.kind is Kind.CONFIG
