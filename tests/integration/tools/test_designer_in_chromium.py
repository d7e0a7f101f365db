"""The designer in a real browser; its pictures in docs/images are made here, as those of the console."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.pipeline.project import open_project
from headrace.tools.demo.shop import create_shop
from headrace.tools.designer.database import DesignDatabase
from headrace.tools.designer.files import DeploymentFolder
from headrace.tools.designer.server import DesignServer
from support.accessibility import serious_findings
from support.means import CHROMIUM, needs

SCREENSHOTS = os.environ.get("HEADRACE_SCREENSHOTS")
pytestmark = needs(CHROMIUM)


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
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(server.url)
        try:
            yield page
            assert [problem for problem in problems if "status of 4" not in problem] == []
        finally:
            context.close()


def keep_screenshot(page: Page, name: str, tmp_path: Path) -> None:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    is_kept = SCREENSHOTS is not None and "hostile" not in name
    folder = Path(SCREENSHOTS) if SCREENSHOTS is not None and is_kept else tmp_path
    image.quantize(96, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        folder / f"{name}.png", optimize=True
    )


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_a_deployment_is_designed_by_clicks(browser: Browser, shop: str, tmp_path: Path, dark: bool) -> None:
    with opened(browser, shop, tmp_path, dark=dark) as page:
        text, document, outline = page.locator("#text"), page.locator("#body"), page.locator("#outline")
        page.locator(".box[data-table=orders]").click()
        expect(text).to_have_value(re.compile("^table: orders$", re.MULTILINE))
        expect(document).to_contain_text('"order_items"')
        outline.get_by_role("button", name="user one").last.click()
        page.locator("#columns").get_by_label("email").uncheck()
        expect(document).not_to_contain_text('"email"')
        expect(text).not_to_have_value(re.compile("- keyword: email"))
        outline.get_by_role("button", name="order_items list").click()
        expect(document).not_to_contain_text('"product":')
        page.locator(".box[data-table=products]").click()
        expect(document).to_contain_text('"product":')
        page.locator("#node").get_by_label("limit").fill("2")
        page.locator("#node").get_by_label("limit").press("Enter")
        expect(text).to_have_value(re.compile("^    limit: 2$", re.MULTILINE))
        expect(page.locator("#measured")).to_contain_text("Lucene documents")
        page.wait_for_timeout(300)
        assert serious_findings(page) == []
        keep_screenshot(page, f"design-{'dark' if dark else 'light'}", tmp_path)
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_contain_text("headrace check")
        assert (tmp_path / "orders.schema.yml").read_text() == text.input_value()
    project = open_project(tmp_path / "headrace.toml", {"DATABASE_URL": shop})
    assert project.specs["orders"].table.name == "orders"


FILE = """\
# Products, as the search shows them.
version: 1
table: products
primary_key: id
fields:
  - text: name     # never the full one
  # the price counts
  - decimal: price
"""


def test_an_existing_file_keeps_its_comments_and_what_others_changed(
    browser: Browser, shop: str, tmp_path: Path
) -> None:
    file = tmp_path / "products.schema.yml"
    file.write_text(FILE)
    with opened(browser, shop, tmp_path) as page:
        page.get_by_label("Open").select_option("products.schema.yml")
        expect(page.locator("#body")).to_contain_text('"price"')
        page.locator("#columns").get_by_label("sku").check()
        expect(page.locator("#body")).to_contain_text('"sku"')
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#saved")).to_contain_text("products.schema.yml")
        assert file.read_text().startswith(FILE)
        assert "- keyword: sku" in file.read_text()

        page.locator("#columns").get_by_label("price").uncheck()
        expect(page.locator("#body")).not_to_contain_text('"price"')
        file.write_text(FILE)
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#asked")).to_contain_text("has been changed on disk meanwhile")
        assert file.read_text() == FILE
        page.get_by_role("button", name="Load it from disk").click()
        expect(page.locator("#text")).to_have_value(FILE)

        page.locator("#text").fill(FILE.replace("- text", "- txet"))
        expect(page.locator("#problems")).to_contain_text("Did you mean 'text'?")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        refusal = {"problems": [{"level": "error", "text": "not now", "remedy": "", "sql": []}]}
        page.route("**/api/view", lambda route: route.fulfill(status=422, json=refusal))
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#problems")).to_contain_text("not now")
        # The page may have asked by itself as well: the click's own request is refused, too.
        expect(page.get_by_role("button", name="Undo")).to_be_enabled()
        page.unroute("**/api/view")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#text")).to_have_value(FILE)


def test_hostile_names_and_many_tables_are_text_that_fits(
    browser: Browser, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    url = postgres.create_database("designed_in_chromium")
    name = "<img src=x onerror=alert(1)> \"'\n quoted"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            psycopg.sql.SQL("CREATE TABLE {0} ({0} int PRIMARY KEY); INSERT INTO {0} VALUES (1)").format(
                psycopg.sql.Identifier(name)
            )
        )
        connection.execute(
            "DO $$ BEGIN FOR n IN 1..300 LOOP EXECUTE format('CREATE TABLE t_%s (id int PRIMARY KEY, "
            "parent int REFERENCES t_%s)', n, greatest(n / 6, 1)); END LOOP; END $$"
        )
    with opened(browser, url, tmp_path, width=390) as page:
        expect(page.locator("#legend")).to_contain_text("253 more tables are not drawn")
        page.get_by_label("Find a table").fill("IMG")
        expect(page.locator("#tables li")).to_have_count(1)
        page.locator("#tables button").click()
        expect(page.locator("#body")).to_contain_text(": 1")
        assert page.locator("img, #picture image").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        keep_screenshot(page, "design-hostile", tmp_path)
