"""Record what `/metrics` answers, as the series that the tests of Prometheus' rules read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3
from prometheus_client.parser import text_string_to_metric_families

STEP_SECONDS = 5
"""Between two scrapes."""
_TARGET = {"job": "headrace", "instance": "recorded"}
_LABELS = tuple(sorted(_TARGET.items()))
_Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Recording:
    """Recorded series, in promtool's notation; `scrapes` is their length."""

    scrapes: int
    series: dict[str, str]

    def save(self, file: Path) -> None:
        """Write it to a file, for `load`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read what `save` wrote."""
        return cls(**json.loads(file.read_text()))


class MetricsRecorder:
    """Scrapes while it is entered, as Prometheus does.

    Args:
        scrape: returns the text of `/metrics`; where it fails the target is down.
        step: seconds between two scrapes.
    """

    def __init__(self, scrape: Callable[[], str], step: float = STEP_SECONDS) -> None:
        self._scrape = scrape
        self._step = step
        self._scrapes: list[dict[_Series, float]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ending.is_set():
            try:
                text = self._scrape()
            except (OSError, urllib3.exceptions.HTTPError):
                text = ""
            self._scrapes.append(_parse(text))
            self._ending.wait(max(0.0, began + len(self._scrapes) * self._step - time.monotonic()))

    def recording(self, metrics: set[str]) -> Recording:
        """Return the series of these metrics, after the context."""
        known = sorted({series for scrape in self._scrapes for series in scrape if series[0] in metrics})
        return Recording(
            len(self._scrapes),
            {_name(series): _values([scrape.get(series) for scrape in self._scrapes]) for series in known},
        )


def _parse(text: str) -> dict[_Series, float]:
    return {("up", _LABELS): float(bool(text))} | {
        (sample.name, tuple(sorted({**sample.labels, **_TARGET}.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _name(series: _Series) -> str:
    name, labels = series
    text = ", ".join(f'{label}="{value}"' for label, value in labels)
    return f"{name}{{{text}}}"


def _values(values: Sequence[float | None]) -> str:
    """Write values as promtool reads them: `_` for none, `stale` where a series ends, `AxN` for N repeats."""
    words = [
        _number(value) if value is not None else "stale" if before is not None else "_"
        for before, value in zip((None, *values), values, strict=False)
    ]
    runs = ((word, len(list(group))) for word, group in groupby(words))
    return " ".join(
        f"_x{count}" if word == "_" else word if count == 1 else f"{word}x{count - 1}" for word, count in runs
    )


def _number(value: float) -> str:
    """Write a number without an exponent, whose sign promtool takes for an operator."""
    return f"{value:.6f}".rstrip("0").rstrip(".")
