"""Does a session open beside other work, and close once, with the error that ended the work?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.spark.background_session import BackgroundSpark
from headrace.spark.session import LocalSpark


class Opener:
    """Opens objects in place of sessions, and notes what happens to them in which thread."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.events: list[str] = []
        self.threads: set[int] = set()
        self.failure: HeadraceError | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[LocalSpark]:
        self.threads.add(threading.get_ident())
        self.allowed.wait(10)
        if self.failure is not None:
            raise self.failure
        self.events.append("open")
        try:
            yield LocalSpark(cast("Any", None), Path(), Path(str(len(self.events))))
        except ValueError as error:
            self.events.append(f"ended by {error}")
            raise HeadraceError(Kind.SPARK, "Spark's Java process was killed") from error
        finally:
            self.threads.add(threading.get_ident())
            self.events.append("closed")


def test_it_opens_and_closes_in_one_other_thread_while_the_caller_goes_on() -> None:
    opener = Opener()
    spark = BackgroundSpark(opener.open)
    spark.begin()
    spark.begin()
    assert not opener.events
    opener.allowed.set()
    with spark:
        assert opener.events == ["open"]
        first = spark.current
        spark.renew()
        assert spark.current != first
    spark.close()
    assert opener.events == ["open", "closed", "open", "closed"]
    assert len(opener.threads) == 1
    assert threading.get_ident() not in opener.threads
    assert not any(thread.name.startswith("headrace spark") for thread in threading.enumerate())


def test_one_that_is_still_opening_is_closed() -> None:
    opener = Opener()
    spark = BackgroundSpark(opener.open)
    spark.begin()
    threading.Timer(0.1, opener.allowed.set).start()
    spark.close()
    assert opener.events == ["open", "closed"]


def test_a_session_that_does_not_open_fails_where_it_is_needed() -> None:
    opener = Opener()
    opener.failure = HeadraceError(Kind.SPARK, "Spark does not start")
    opener.allowed.set()
    spark = BackgroundSpark(opener.open)
    spark.begin()
    with pytest.raises(HeadraceError, match="does not start"), spark:
        pass
    spark.close()


def test_a_session_that_could_not_be_renewed_is_opened_by_whoever_needs_it_next() -> None:
    """As where the master of a cluster was just being started again."""
    opener = Opener()
    opener.allowed.set()
    with BackgroundSpark(opener.open) as spark:
        opener.failure = HeadraceError(Kind.SPARK, "there is no Spark master")
        with pytest.raises(HeadraceError, match="no Spark master"):
            spark.renew()
        with pytest.raises(HeadraceError, match="no Spark master"):
            _ = spark.current
        opener.failure = None
        assert spark.current is spark.current
    assert opener.events == ["open", "closed", "open", "closed"]


def test_the_session_sees_the_error_that_ends_the_work_and_may_explain_it() -> None:
    opener = Opener()
    opener.allowed.set()
    with pytest.raises(HeadraceError, match="was killed"), BackgroundSpark(opener.open):
        raise ValueError("no answer")
    assert opener.events == ["open", "ended by no answer", "closed"]


def test_one_that_never_began_is_closed_without_a_thread() -> None:
    BackgroundSpark(Opener().open).close()
