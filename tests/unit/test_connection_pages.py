from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headrace.config.load import load_deployment
from headrace.config.resolve import resolve
from headrace.errors import Kind
from headrace.postgres.address import for_slot, parse_address
from headrace.postgres.connection import with_defaults

DOCS = Path(__file__).parents[2] / "docs"
CONNECTIONS = (DOCS / "guides/connections.md").read_text()
_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [match["text"] for match in _BLOCK.finditer(CONNECTIONS) if match["kind"] == kind]


def test_every_error_code_has_its_section_and_nothing_else_has() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert sorted(section.split("\n", 1)[0] for section in sections) == sorted(
        f"HEADRACE_{kind.value}" for kind in Kind
    )
    for section in sections:
        assert all(part in section for part in ("**Means**", "**Causes**", "**Remedy**")), section
    assert set(re.findall(r"HEADRACE_[A-Z_]+", CONNECTIONS)) <= {f"HEADRACE_{kind.value}" for kind in Kind}


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_deployment_files_of_the_page_lead_somewhere(text: str, tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    found = resolve(load_deployment(file, {"SHOP_PASSWORD": "p@ss/word"}))
    told = parse_address(for_slot(found.database_url.reveal(), "shop", found.password_command))
    assert told.place == "db.example:5432/shop"
    assert told.parameters["sslmode"] == "verify-full"
    assert told.command or told.parameters["password"] == "p@ss/word"


def test_the_shell_lines_of_the_page_name_a_connection_string() -> None:
    for text in blocks("sh"):
        words = shlex.split(text)
        assert words[0] == "export"
        assert "target_session_attrs=primary" in with_defaults(words[1].removeprefix("DATABASE_URL="))


def test_the_defaults_of_the_page_are_those_that_hold() -> None:
    given = with_defaults("host=h")
    for row in re.findall(
        r"^\| (`connect_timeout.*?|`keepalives.*?|`tcp_user.*?) \| ([\d, ]+) \|", CONNECTIONS, re.MULTILINE
    ):
        for name, value in zip(re.findall(r"`(\w+)`", row[0]), row[1].split(", "), strict=True):
            assert f"{name}={value}" in given.split()
