import re
from pathlib import Path

import pytest
import typer

from builder.commands import GUIDES
from builder.errors import error_page, policy_line, read_remedies
from builder.stage import GENERATED
from headrace.cli.app import app
from headrace.config.load import load_deployment
from headrace.errors import BACKFILL_AGAIN, Kind
from headrace.schema import language
from headrace.schema.load import load_schema

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_group(app)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_every_error_code_is_explained_with_its_exit_code_and_whether_it_waits() -> None:
    _, remedies = read_remedies((ROOT / "docs/troubleshooting.md").read_text())
    explained = {remedy.kind: remedy.text.partition("\n")[0] for remedy in remedies}
    assert explained == {kind: policy_line(kind) for kind in Kind}


def test_the_page_of_an_error_lists_its_messages_with_shared_remedies() -> None:
    _, remedies = read_remedies((ROOT / "docs/troubleshooting.md").read_text())
    pages = {remedy.kind: error_page(remedy) for remedy in remedies}
    assert (
        f"| the state of this deployment was deleted from the cluster | {BACKFILL_AGAIN} |"
        in pages[Kind.CONTINUITY]
    )
    assert "| the slot NAME is lost: WHY_LOST |" in pages[Kind.SLOT_LOST]


@pytest.mark.parametrize("source", GENERATED)
def test_a_generated_page_is_what_the_code_says(source: str) -> None:
    """If not: `make docs ARGS=--write`."""
    assert (ROOT / source).read_text() == GENERATED[source](), "make docs ARGS=--write"


def test_every_command_has_a_guide() -> None:
    assert GUIDES.keys() == COMMANDS.commands.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_head_and_as_many_cells_in_each_row(page: Path) -> None:
    """A blank line in the middle of one made text of the rest."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        is_headed = len(rows) > 1 and re.fullmatch(r"\|(?:\s*:?-+:?\s*\|)+", table.splitlines()[1])
        if not is_headed or len(set(rows)) > 1:
            broken.append(table.splitlines()[0])
    assert broken == []


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_schema_file_for_newcomers_is_one(tmp_path: Path) -> None:
    [text] = blocks("docs/start.md", "yaml")
    file = tmp_path / "users.schema.yml"
    file.write_text(text)
    assert {table.name for table in load_schema(file, "users").tables()} == {
        "users",
        "profiles",
        "orders",
        "order_items",
    }


def test_the_deployment_file_of_the_documentation_is_one(tmp_path: Path) -> None:
    [text] = blocks("docs/guides/configuration.md", "toml")
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    (tmp_path / "users.schema.yml").touch()
    deployment = load_deployment(file, {})
    assert [entry.name for entry in deployment.enabled] == ["users"]
    assert deployment.variables() >= {"SHOP_DATABASE", "SEARCH_PASSWORD"}


def test_every_type_and_operator_of_the_schema_language_is_documented() -> None:
    page = (ROOT / "docs/reference/schema.md").read_text()
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    written = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`\n]+)`", prose))))
    assert set(language.TAGS) - written == set()
    assert set(language.FILTER_OPS) - written == set()


def test_every_option_has_a_variable_of_its_own() -> None:
    found: dict[str, set[str]] = {}
    for command in COMMANDS.commands.values():
        for parameter in command.params:
            if parameter.name != "help":
                assert isinstance(parameter.envvar, str), f"{command.name}: {parameter.name}"
                found.setdefault(parameter.envvar, set()).add(parameter.name)
    assert {variable: names for variable, names in found.items() if len(names) > 1} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_that_is_written_exists(page: Path) -> None:
    text = page.read_text()
    written = [
        (match["command"], match["rest"])
        for match in re.finditer(
            r"(?:`|^)headrace (?P<command>[a-z]+(?:-[a-z]+)*)(?P<rest>[^`#\n]*)", text, re.MULTILINE
        )
    ]
    unknown = [command for command, _ in written if command not in COMMANDS.commands]
    options = [
        f"{command} {option}"
        for command, rest in written
        if command in COMMANDS.commands
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest)
        if option not in {"--help"} | {name for one in COMMANDS.commands[command].params for name in one.opts}
    ]
    assert (unknown, options) == ([], [])


def test_every_test_that_a_guarantee_names_exists() -> None:
    """A promise without its test is only a sentence."""
    page = (ROOT / "docs/explanation/guarantees.md").read_text()
    files = list((ROOT / "tests").rglob("test_*.py"))
    written = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    known = written | {file.name for file in files}
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", page))
    assert named - known == set()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    assert [row for row in rows if "`test_" not in row and not row.endswith("| test |")] == []
