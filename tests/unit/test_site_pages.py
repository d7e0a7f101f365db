"""Are the pages of the site what they are made of, and is a recording what a terminal showed?"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from builder import __main__ as builder
from builder import glossary
from builder import stage as staging
from builder.recording import Line, drawing, lines, record
from builder.stage import BrokenLinkError, place, stage
from headrace.errors import Kind

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    stage(folder)
    return folder


def test_each_error_has_a_page_with_its_remedy_and_a_line_in_the_list(pages: Path) -> None:
    listed = (pages / "troubleshooting.md").read_text()
    for kind in Kind:
        text = (pages / f"errors/{kind.value.lower()}.md").read_text()
        assert "**Remedy**" in text
        assert f"(errors/{kind.value.lower()}.md)" in listed
    assert "**Remedy**" not in listed


def test_a_code_in_a_sentence_leads_to_its_page(pages: Path) -> None:
    text = (pages / "guides/gaps.md").read_text()
    assert "[`HEADRACE_SLOT_LOST`](../errors/slot_lost.md)" in text


def test_a_link_by_file_name_says_what_it_leads_to(pages: Path) -> None:
    text = (pages / "explanation/concepts.md").read_text()
    assert "[Architecture](architecture.md)" in text
    assert not re.findall(r"\[[\w/-]+\.md\]\(", text)


def test_a_word_of_the_glossary_leads_there_at_its_first_use_only() -> None:
    page = "# A slot\n\nA `slot` in [a\nslot](slots.md).\n\nTwo slots keep log.\nA slot too.\n\n| slot |\n"
    assert glossary.Links("../glossary.md").linked(page) == page.replace(
        "Two slots", "Two [slots](../glossary.md#slot)"
    )


def test_each_word_that_leads_to_the_glossary_is_in_it(pages: Path) -> None:
    text = (pages / "reference/glossary.md").read_text()
    assert [word for word in glossary.WORDS if f"- **{word}**{{ #" not in text] == []


def test_a_file_of_the_repository_lies_beside_the_pages(pages: Path) -> None:
    assert "(../files/deploy/compose.yml)" in (pages / "guides/deploy.md").read_text()
    copied = pages / "files/deploy/compose.yml"
    assert copied.read_text() == (ROOT / "deploy/compose.yml").read_text()


def test_the_pages_of_the_folder_above_are_pages_too(pages: Path) -> None:
    assert place("CONTRIBUTING.md") == "contributing.md"
    assert place("docs/decisions/README.md") == "decisions/index.md"
    assert (pages / "contributing.md").exists()


def test_a_picture_that_follows_the_colours_stands_in_its_page(pages: Path) -> None:
    text = (pages / "explanation/concepts.md").read_text()
    assert text.count('<div class="picture"><svg') == 4
    assert "prefers-color-scheme" not in text


def test_a_link_to_a_file_that_is_not_there_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"docs/start.md": lambda: "# Start\n\n[gone](gone.md)\n"}
    monkeypatch.setattr(staging, "GENERATED", broken)
    with pytest.raises(BrokenLinkError, match=re.escape("docs/start.md: [gone](gone.md)")):
        stage(tmp_path / "pages")


def test_every_page_is_in_the_navigation(pages: Path) -> None:
    text = (ROOT / "docs/builder/zensical.toml").read_text()
    nav = str(tomllib.loads(text.replace("@errors@", "").replace("@decisions@", ""))["project"]["nav"])
    found = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    listed = {page for page in found if page.split("/")[0] not in {"errors", "decisions"}}
    assert {page for page in listed if f"'{page}'" not in nav} == set()


def test_without_the_tool_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["make docs", "--build"])
    assert builder.main() == 1
    assert "pip install -e '.[docs]'" in capsys.readouterr().err


OUTPUT = [
    (0.5, "\x1b[?25l\x1b[32mo\x1b[0m starting"),
    (1.0, "\r\x1b[2K\x1b[32mO\x1b[0m starting\r\n"),
    (2.0, "\r\x1b[1A\x1b[2K\x1b[32mdone\x1b[0m\r\nnext"),
    (90.0, " word\r\n"),
]


def test_lines_that_are_overwritten_are_not_recorded() -> None:
    assert [(line.seconds, line.text) for line in lines(OUTPUT)] == [
        (2.0, "\x1b[32mdone\x1b[0m"),
        (90.0, "next word"),
    ]


def test_a_recording_keeps_colours_and_no_password_and_cuts_pauses() -> None:
    url = "postgresql://me:secret@localhost/shop"
    text = drawing("headrace <x>", [*lines(OUTPUT), Line(91.0, f"psql {url} && \x1b[1mbold\x1b[0m")])
    assert re.search(r'<tspan fill="#[0-9a-f]{6}">done</tspan>', text)
    assert "headrace &lt;x&gt;" in text
    assert "postgresql://me:…@localhost/shop" in text
    assert "secret" not in text
    [seconds] = re.findall(r"animation: roll ([\d.]+)s", text)
    assert float(seconds) < 12
    assert set(re.findall(r"(?:href|src|url)\W+https?:", text)) == set()


def test_a_command_is_recorded_in_a_terminal() -> None:
    program = "import sys; print(sys.stdout.isatty()); print('end')"
    assert [line.text for line in lines(record([sys.executable, "-c", program]))] == ["True", "end"]


def test_a_command_that_fails_is_no_recording() -> None:
    with pytest.raises(SystemExit, match="failed with 3"):
        record([sys.executable, "-c", "raise SystemExit(3)"])
