"""The designer in a real browser; its pictures in docs/images are made here, as those of the console."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headrace.demo.shop import create_shop
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.design.database import DesignDatabase
from headrace.pipeline.design.files import DeploymentFolder
from headrace.pipeline.design.server import DesignServer

CHROMIUM = os.environ.get("HEADRACE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SCREENSHOTS = os.environ.get("HEADRACE_SCREENSHOTS")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium in PATH; on Debian: apt install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def shop(postgres: EmbeddedPostgres) -> str:
    url = postgres.create_database("designed_shop")
    create_shop(url, users=60)
    return url


@contextmanager
def opened(
    browser: Browser, url: str, folder: Path, file: str = "", *, dark: bool = False, width: int = 1440
) -> Iterator[Page]:
    """The page; it must raise no error of a script and break no rule of its policy."""
    files = DeploymentFolder(folder, url, "http://127.0.0.1:9200", {})
    problems: list[str] = []
    with DesignServer(DesignDatabase(url), files, "127.0.0.1:0", file) as server:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda message: problems.append(message.text) if message.type == "error" else None
        )
        page.goto(server.url)
        try:
            yield page
            assert [problem for problem in problems if "status of 4" not in problem] == []
        finally:
            context.close()


def keep_screenshot(page: Page, name: str, tmp_path: Path) -> None:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    folder = Path(SCREENSHOTS) if SCREENSHOTS is not None else tmp_path
    image.quantize(96, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        folder / f"{name}.png", optimize=True
    )


@pytest.mark.parametrize("dark", [False, True])
def test_a_deployment_is_designed_by_clicks(
    browser: Browser, shop: str, tmp_path: Path, dark: bool
) -> None:
    with opened(browser, shop, tmp_path, dark=dark) as page:
        page.locator(".box[data-table=orders]").click()
        text, document = page.locator("#text"), page.locator("#body")
        expect(text).to_have_value(__import__("re").compile("table: orders"))
        expect(document).to_contain_text('"order_items"')
        page.locator("#outline").get_by_role("button", name="user one").last.click()
        page.locator("#columns").get_by_label("email").uncheck()
        expect(document).not_to_contain_text('"email"')
        page.locator("#outline").get_by_role("button", name="order_items list").click()
        page.locator("#node").get_by_label("limit").fill("5")
        page.locator("#node").get_by_label("limit").press("Enter")
        page.wait_for_timeout(900)
        keep_screenshot(page, f"design-{'dark' if dark else 'light'}", tmp_path)
