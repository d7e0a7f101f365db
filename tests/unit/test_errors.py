"""Whoever is patient stops being it when there is nothing to wait for any more."""

from __future__ import annotations

import threading
import time

import pytest

from headrace.errors import HeadraceError, Kind, retrying


def test_what_passes_by_itself_is_tried_again_and_what_does_not_is_not() -> None:
    left = [HeadraceError(Kind.CONNECTION, "away"), HeadraceError(Kind.CONFIG, "wrong")]

    def fail() -> None:
        raise left.pop(0)

    with pytest.raises(HeadraceError, match="wrong"):
        retrying(first=0.001)(fail)
    assert left == []


def test_at_the_end_no_pause_is_waited_out_and_the_next_failure_is_the_last() -> None:
    ending = threading.Event()
    tries: list[float] = []
    threading.Timer(0.2, ending.set).start()
    began = time.monotonic()

    def fail() -> None:
        tries.append(time.monotonic() - began)
        raise HeadraceError(Kind.CONNECTION, "away")

    with pytest.raises(HeadraceError, match="away"):
        retrying(first=30.0, longest=30.0, ending=ending)(fail)
    assert len(tries) == 2
    assert tries[1] < 10
