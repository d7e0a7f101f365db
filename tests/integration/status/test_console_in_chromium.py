"""The console in a real browser, in every state; the screenshots in docs/images are made here.

`HEADRACE_SCREENSHOTS=docs/images` writes them there. `HEADRACE_CHROMIUM` names a browser that is not in PATH.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.status import StatusBoard, StatusServer
from headrace.status.board import Positions
from support.accessibility import serious_findings
from support.console_states import STATES, FakeExplains, board_in, busy_stages, fill_history, keep_reporting
from support.means import CHROMIUM, needs

SCREENSHOTS = os.environ.get("HEADRACE_SCREENSHOTS")
IN_DOCS = re.compile(
    r"(live-desktop-light|backfilling-desktop-dark|cluster-away-desktop-light|slot-lost-desktop-dark"
    r"|quarantine-desktop-light|secondary-behind-desktop-dark|live-phone-dark|cluster-away-phone-light|search)"
)
pytestmark = needs(CHROMIUM)


@contextmanager
def served(state: str) -> Iterator[tuple[StatusBoard, StatusServer]]:
    """A run in this state, which goes on working."""
    board = board_in(state)
    with StatusServer(board, "127.0.0.1:0", explains=FakeExplains()) as server:
        fill_history(server._console.feed.history, state)
        ending = threading.Event()
        worker = threading.Thread(target=work, args=(board, state, ending))
        worker.start()
        try:
            yield board, server
        finally:
            ending.set()
            worker.join()


def work(board: StatusBoard, state: str, ending: threading.Event) -> None:
    """Let changes come in, and be written where nothing keeps them from it."""
    flows = state not in {"cluster-away", "slot-lost", "paused", "standby"}
    before, number = board.view(), 0
    start = before.positions
    while not ending.wait(0.1):
        number += 1
        current = None if start.current is None else start.current + number * 140_000
        confirmed = start.confirmed
        if flows and confirmed is not None:
            confirmed += number * 140_000
            board.note(stages=busy_stages(number))
            board.set_counts(replace(before.counts, changes=before.counts.changes + 62 * number))
        board.set_positions(Positions(confirmed, confirmed, current))
        keep_reporting(board, state)


@contextmanager
def opened(
    browser: Browser,
    address: str,
    path: str = "/",
    *,
    width: int = 1280,
    dark: bool = False,
    script: bool = True,
) -> Iterator[Page]:
    """The page in a window of its own; it must raise no error of a script and break no rule of its policy."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    problems: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://{address}/")
    try:
        yield page
        assert [problem for problem in problems if "ERR_" not in problem] == []
    finally:
        context.close()


def keep_screenshot(page: Page, name: str, tmp_path: Path) -> None:
    """Save the page as a small picture: the docs show some of them."""
    image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    is_kept = SCREENSHOTS is not None and IN_DOCS.search(name)
    folder = Path(SCREENSHOTS) if SCREENSHOTS is not None and is_kept else tmp_path
    image.quantize(96, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        folder / f"console-{name}.png", optimize=True
    )


WORDS = {
    "live": "live",
    "backfilling": "backfilling",
    "cluster-away": "degraded",
    "slot-lost": "stopped",
    "quarantine": "live",
    "secondary-behind": "live",
    "paused": "paused",
    "waiting": "live",
    "standby": "standby",
}
SAID = {
    "live": "every index is backfilled",
    "backfilling": "about 10 min 52 s left",
    "cluster-away": "Start the cluster, or correct [sink] url",
    "slot-lost": "headrace teardown",
    "quarantine": "headrace quarantine list users",
    "secondary-behind": "the sink archive is behind: it lacks 4,213 documents",
    "paused": "headrace resume continues it",
    "waiting": "except for 1 of 3 indexes: users",
    "standby": "it takes over when that run ends",
}


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
@pytest.mark.parametrize("state", STATES)
def test_every_state_is_told_and_fits_the_screen(
    browser: Browser, tmp_path: Path, state: str, width: int, dark: bool
) -> None:
    with served(state) as (_, server), opened(browser, server.address, width=width, dark=dark) as page:
        expect(page.locator(".chart canvas")).to_have_count(2)
        page.wait_for_timeout(2200)
        expect(page.locator(".word")).to_have_text(WORDS[state])
        expect(page.locator("main")).to_contain_text(SAID[state])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#silence").is_hidden()
        assert serious_findings(page) == []
        name = f"{state}-{'phone' if width < 500 else 'desktop'}-{'dark' if dark else 'light'}"
        keep_screenshot(page, name, tmp_path)


def test_the_page_follows_the_run_without_being_loaded_again(browser: Browser) -> None:
    with served("backfilling") as (board, server), opened(browser, server.address) as page:
        page.evaluate("window.marked = true")
        board.record_error(HeadraceError(Kind.SINK_UNREACHABLE, "the cluster is away"))
        expect(page.locator(".word")).to_have_text("degraded")
        expect(page.locator("#events")).to_contain_text("the cluster is away")
        assert page.title().startswith("degraded")
        assert page.evaluate("window.marked")


def test_hostile_names_are_text_and_nothing_else(browser: Browser, tmp_path: Path) -> None:
    with served("hostile") as (_, server), opened(browser, server.address, width=390) as page:
        page.wait_for_timeout(2200)
        keep_screenshot(page, "hostile", tmp_path)
        assert page.title().startswith("degraded")
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        expect(page.locator("#indexes .name").first).to_contain_text("<script>document.title")


def test_a_run_that_ends_says_why_and_that_this_is_the_last_of_it(browser: Browser) -> None:
    with served("live") as (board, server), opened(browser, server.address) as page:
        expect(page.locator(".word")).to_have_text("live")
        assert until(lambda: bool(server._console.feed._watchers), 30)
        STATES["slot-lost"](board)
        server.stop()
        expect(page.locator("#silence")).to_have_text(re.compile("The run has ended"))
        expect(page.locator(".word")).to_have_text("stopped")
        expect(page.locator("#state")).to_contain_text("HEADRACE_SLOT_LOST")


A_RUN = """
import sys
from headrace.status import StatusBoard, StatusServer
with StatusServer(StatusBoard(["users"]), "127.0.0.1:0") as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_a_run_that_is_killed_is_noticed_within_five_seconds(browser: Browser) -> None:
    command = [sys.executable, "-c", A_RUN]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    try:
        with opened(browser, run.stdout.readline().strip()) as page:
            page.wait_for_timeout(1500)
            assert page.locator("#silence").is_hidden()
            for way in (signal.SIGSTOP, signal.SIGKILL):  # a hanging machine; a process that has gone
                run.send_signal(way)
                began = time.monotonic()
                expect(page.locator("#silence")).to_contain_text("the run may have ended", timeout=5000)
                assert time.monotonic() - began < 5
    finally:
        run.kill()
        run.communicate()


def test_it_is_whole_without_javascript(browser: Browser) -> None:
    with served("live") as (_, server), opened(browser, server.address, script=False) as page:
        expect(page.locator(".word")).to_have_text("live")
        expect(page.locator("#indexes")).to_contain_text("1,204,331")
        assert page.locator("meta[http-equiv=refresh]").count() == 1


def test_a_document_is_searched_for(browser: Browser, tmp_path: Path) -> None:
    with served("live") as (_, server), opened(browser, server.address) as page:
        page.get_by_label("index/id").fill("users/42")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".answer")).to_contain_text("soft-deleted")
        assert page.get_by_label("index/id").input_value() == "users/42"
        page.wait_for_timeout(2200)
        expect(page.locator(".answer")).to_contain_text("soft-deleted")
        keep_screenshot(page, "search", tmp_path)


def test_a_run_that_knows_nothing_yet_says_what_will_stand_where(browser: Browser) -> None:
    with (
        StatusServer(StatusBoard(["users"]), "127.0.0.1:0") as server,
        opened(browser, server.address) as page,
    ):
        for place, will_be in (("slot", "How much log"), ("tables", "Each table")):
            expect(page.locator(f"#{place}")).to_contain_text(will_be)
        assert serious_findings(page) == []


def test_a_state_has_a_sign_beside_its_colour(browser: Browser) -> None:
    # In one step: the page replaces its parts every second, and a part that is gone has no style.
    sign = "tone => getComputedStyle(document.querySelector(`.mark.${tone}`), '::before').content"
    with served("quarantine") as (_, server), opened(browser, server.address) as page:
        signs = {tone: page.evaluate(sign, tone) for tone in ("good", "bad")}
        assert signs["good"].startswith('"✓ "')
        assert signs["bad"].startswith('"! "')
        first = page.locator("main .panel h2").first
        expect(first).to_have_text("Indexes")
