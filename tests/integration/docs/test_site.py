"""The site is built strictly, asks no other host for anything, and its search works without one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from builder import stage as staging
from builder.__main__ import QuietHandler, build
from headrace.embedded.processes import until
from support.accessibility import serious_findings
from support.means import CHROMIUM, needs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    assert build(folder)
    return folder / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def opens_search(page: Page) -> bool:
    """Press Ctrl+K; return whether the page answers: nothing on it says when it begins to listen to keys."""
    page.keyboard.press("Control+k")
    try:
        page.wait_for_selector("input:focus", state="attached", timeout=2_000)
    except PlaywrightTimeout:
        return False
    return True


@pytest.mark.long
def test_the_pages_load_nothing_from_other_hosts(site: Path) -> None:
    """What a page or its style may load by itself; links that a reader follows are others."""
    loading = re.compile(
        r"""(?:src|srcset)=["']?https?:|<link[^>]+href=["']?https?:|url\(["']?https?:|@import"""
    )
    pages = [page for kind in ("*.html", "*.css", "*.svg") for page in site.rglob(kind)]
    assert len(pages) > 100
    assert [page for page in pages if loading.search(page.read_text())] == []


@pytest.mark.long
@pytest.mark.parametrize("link", ["[x](#no-such-heading)", "[x](../guides/gaps.md#no-such-heading)"])
def test_a_link_to_a_section_that_is_not_there_ends_the_build(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = f"# Metrics\n\n{link}\n"
    monkeypatch.setitem(staging.GENERATED, "docs/reference/metrics.md", lambda: page)
    assert not build(tmp_path)
    told = capfd.readouterr().err
    assert "anchor does not exist" in told
    assert "reference/metrics.md" in told
    assert "Traceback" not in told


@pytest.mark.long
@needs(CHROMIUM)
@pytest.mark.parametrize("width", [1366, 390])
def test_a_reader_searches_without_a_network(browser: Browser, address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address, wait_until="networkidle")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert until(lambda: opens_search(page), 60)
    page.keyboard.type("wal_budget")
    expect(page.get_by_text("Keys of the deployment file").last).to_be_visible(timeout=20_000)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    page.close()


def test_programs_that_read_text_find_every_page_and_its_text(site: Path) -> None:
    listed = re.findall(
        r"^- \[[^\]]+\]\(([^)]+)\)(?:: (\S.*))?$", (site / "llms.txt").read_text(), re.MULTILINE
    )
    assert {"index.md", "reference/schema.md", "errors/slot_lost.md"} <= {file for file, _ in listed}
    assert all((site / file).is_file() for file, _ in listed)
    whole = (site / "llms-full.txt").read_text()
    assert all((site / file).read_text() in whole for file in ("reference/schema.md", "guides/spark.md"))
    assert "<svg" not in whole


@needs(CHROMIUM)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "pages", [["index.html", "start/index.html"], pytest.param([], marks=pytest.mark.long)]
)
def test_a_keyboard_and_a_screen_reader_suffice(
    browser: Browser, site: Path, address: str, pages: list[str]
) -> None:
    """Of all pages where none is named."""
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    findings: dict[str, list[str]] = {}
    for name in pages or sorted(str(file.relative_to(site)) for file in site.rglob("*.html")):
        page.goto(address + name)
        if found := serious_findings(page):
            findings[name] = found
    page.close()
    assert findings == {}
