import re
from pathlib import Path

import pytest

from headrace.errors import POLICIES, Kind, Retry

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_ROW = re.compile(r"^\| `HEADRACE_(?P<kind>[A-Z_]+)` \| (?P<exit>\d)(?P<waits>, waits)? \|", re.MULTILINE)


def test_every_error_code_is_explained_with_its_exit_code_and_whether_it_is_retried() -> None:
    explained = {
        match["kind"]: (int(match["exit"]), match["waits"] is not None)
        for match in _ROW.finditer((ROOT / "docs/operations.md").read_text())
    }
    raised = {kind.value: (POLICIES[kind].exit_code, POLICIES[kind].retry is Retry.BACK_OFF) for kind in Kind}
    assert explained == raised


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/decisions/*.md")), ids=lambda page: page.stem)
def test_a_decision_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 25
