"""Draw the recorded ratios: `docs/images/benchmarks.svg`, a panel for each, from `bench/history.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.history import Record, load, series

PATH = Path(__file__).parents[2] / "docs" / "images" / "benchmarks.svg"

_COLUMNS = 4
_PANEL_INCHES = (2.6, 1.7)
_SHOWN = 20
"""How many records of a ratio are drawn, the latest."""

_GREY, _BLUE = "#777777", "#2b6cb0"


def draw(records: Sequence[Record], path: Path = PATH) -> None:
    """Draw the latest records of each ratio, with its bar; the same records make the same file."""
    groups = sorted(series(records).items())
    rows = -(-len(groups) // _COLUMNS)
    figure = Figure((_COLUMNS * _PANEL_INCHES[0], rows * _PANEL_INCHES[1]), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for (_, group), panel in zip(groups, panels, strict=False):
        _draw_panel(panel, group[-_SHOWN:])
    for panel in list(figure.axes)[len(groups) :]:
        panel.set_axis_off()
    with mpl.rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(panel: Axes, group: Sequence[Record]) -> None:
    last = group[-1]
    ratios = [record.ratio for record in group]
    panel.axhline(last.bar, color=_GREY, linestyle="--", linewidth=0.8)
    panel.plot(range(len(group)), ratios, color=_BLUE, marker="o", markersize=3, linewidth=1)
    panel.set_title(f"{last.name} {last.arguments}".strip(), fontsize=8, loc="left")
    panel.annotate(
        f"{last.ratio:.2f}",
        (len(group) - 1, last.ratio),
        textcoords="offset points",
        xytext=(0, 5),
        ha="center",
        fontsize=7,
    )
    commits = [record.commit for record in (group[0], last)]
    panel.set_xticks(sorted({0, len(group) - 1}), commits[-len({0, len(group) - 1}) :], fontsize=6)
    panel.set_xlabel(last.machine, fontsize=6)
    panel.set_xlim(-0.5, len(group) - 0.5)
    panel.set_ylim(0, 1.25 * max(*ratios, last.bar))
    panel.tick_params(axis="y", labelsize=6)
    panel.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(load())
