"""Can what a command prints be read on a terminal of 80 and of 120 columns?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from headrace.cli import main
from integration.cli.command_line import PETS, SCHEMA, Deployment
from integration.cli.screen import Screen, shown
from integration.cli.stock import Stock

_NARROW, _WIDE = 80, 120
_SQL = re.compile(r"(CREATE|ALTER|COMMENT|DROP) ")


def fits(screen: Screen, width: int) -> None:
    """No line is broken by the terminal itself, except SQL, which is copied from there, and single words."""
    wide = [line.strip() for line in screen.lines if cell_len(line) > width]
    assert not [line for line in wide if " " in line and not _SQL.match(line)], wide


def test_what_a_terminal_shows_before_a_first_start_is_broken_between_words(whole: Deployment) -> None:
    whole.schema = SCHEMA + PETS
    whole.write()
    found = shown(whole.folder, _NARROW, "check")
    fits(found, _NARROW)
    assert found.code == 0
    assert "2 warnings; next: headrace setup" in found.text


@pytest.mark.long
def test_tables_of_generations_and_slots_fit(stock: Stock) -> None:
    folder = stock.config.parent
    for width, command in ((_NARROW, "indexes"), (_NARROW, "slots"), (_WIDE, "slots")):
        found = shown(folder, width, command)
        fits(found, width)
        assert found.code == 0, found.text
    with stock.followed():
        stock.ask("DELETE", "3.50:b")
        found = shown(folder, _NARROW, "verify", "stock", "--repair")
    fits(found, _NARROW)
    assert found.code == 0, "what was repaired is right"
    assert re.search(r"repaired +1: rebuilt", found.text)
    assert "is what the database says: 1 rebuilt" in found.text


@pytest.mark.parametrize(
    "words",
    [
        ("chekc",),
        ("setup", "--nope"),
        ("init", "postgresql://x"),
        *((command, "--config", "nowhere.toml") for command in (
            "run", "setup", "teardown", "lag", "slots", "schema", "indexes", "wait", "quarantine",
        )),
        *((command, "an_index", "--config", "nowhere.toml") for command in (
            "preview", "verify", "reindex", "rollback", "adopt",
        )),
        ("init", "postgresql://nobody@127.0.0.1:9/none", "--table", "t"),
    ],
)  # fmt: skip
def test_every_command_tells_an_error_as_json(
    tmp_path: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--format", "json"])
    [line] = capsys.readouterr().err.splitlines()
    error = json.loads(line)["error"]
    assert ended.value.code == error["exit_code"]
    assert re.fullmatch(r"HEADRACE_(USAGE|CONFIG|CONNECTION)", error["code"])
