"""Check a page in Chromium for people who use a keyboard or a screen reader, with axe-core."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_AXE = (Path(__file__).parent / "axe/axe.min.js").read_text()
_RUN = "() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
_GRAVE = {"serious", "critical"}


def serious_findings(page: Page) -> list[str]:
    """Return what axe-core calls serious or critical: the rule, how it is met, and the elements."""
    page.evaluate(_AXE)
    return [
        f"{found['id']}: {found['help']}: {', '.join(str(node['target']) for node in found['nodes'][:5])}"
        for found in page.evaluate(_RUN)
        if found["impact"] in _GRAVE
    ]
