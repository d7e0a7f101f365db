"""A log that comes again is taken for the one that was read if, and only if, it is that one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.offset import Offset
from headrace.capture.recognition import Recognition
from headrace.capture.transactions import Transactions
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import KnownCommit

_LENGTH = 5  # of a commit record
_BEGINNING = 10  # where reading begins


@dataclass(frozen=True)
class Commit:
    """A transaction; without changes the server may send it or not."""

    lsn: int
    xid: int
    changes: int


def found(commits: list[Commit]) -> Transactions:
    owner = [place for place, commit in enumerate(commits) for _ in range(commit.changes)]
    lsn = np.array([commit.lsn for commit in commits], np.int64)
    return Transactions(
        lsn,
        lsn * 1000,
        np.array([commit.xid for commit in commits], np.int64),
        np.arange(len(commits)),
        lsn + _LENGTH,
        np.arange(len(owner)),
        np.array(owner, np.int64),
        np.array([n + 1 for commit in commits for n in range(commit.changes)], np.int64),
        None,
    )


@st.composite
def logs(draw: st.DrawFn, behind: int = _BEGINNING, first_xid: int = 700) -> list[Commit]:
    gaps = draw(st.lists(st.integers(_LENGTH, 30), max_size=8))
    places = (behind + np.cumsum(gaps, dtype=int)).tolist()
    return [Commit(lsn, first_xid + n, draw(st.integers(0, 2))) for n, lsn in enumerate(places)]


def sent(log: list[Commit], confirmed: int, asked: int, data: st.DataObject) -> list[list[Commit]]:
    """What the server sends of it, in pieces."""
    begin = max(confirmed, asked)
    coming = [
        commit for commit in log if commit.lsn >= begin and (commit.changes or data.draw(st.booleans()))
    ]
    cut = data.draw(st.integers(0, len(coming)))
    return [coming[:cut], coming[cut:]]


def take(recognition: Recognition, parts: list[list[Commit]], end: int) -> None:
    for part in parts:
        recognition.look(found(part))
        assert recognition.is_open, "something was confirmed"
    recognition.passed(end)


def read(log: list[Commit], data: st.DataObject) -> tuple[Recognition, int]:
    """Whoever has read all of it, if anything, in this process or an earlier one, and up to where (bytes)."""
    upto = max([commit.lsn + _LENGTH for commit in log], default=_BEGINNING) + data.draw(st.integers(0, 40))
    recognition = Recognition(Offset(_BEGINNING))
    recognition.connected(0)
    recognition.look(found(log))
    recognition.passed(upto)
    if data.draw(st.booleans()):
        place = Offset(upto, last=recognition.last)
        recognition = Recognition(Offset.from_json(place.to_json()))
    return recognition, upto


@given(st.data(), logs())
@settings(max_examples=300)
def test_the_same_log_is_always_known_again(data: st.DataObject, log: list[Commit]) -> None:
    recognition, upto = read(log, data)
    for _ in range(2):
        confirmed = data.draw(st.integers(0, upto))
        recognition.connected(confirmed)
        assert recognition.beginning(upto) <= upto
        for part in sent(log, confirmed, recognition.beginning(upto), data):
            recognition.look(found(part))
        recognition.passed(upto)
        assert not recognition.is_open
        recognition.look(found([Commit(upto + 3, 900, 1)]))
        assert recognition.last == KnownCommit(upto + 3, 900, (upto + 3) * 1000)
        log = [*log, Commit(upto + 3, 900, 1)]
        upto += 3 + _LENGTH


@given(st.data(), logs())
@settings(max_examples=300)
def test_another_log_is_never_taken_for_it(data: st.DataObject, log: list[Commit]) -> None:
    """It was put back to some place, where the slot stood there or before, and went on in another way."""
    recognition, upto = read(log, data)
    back = data.draw(st.integers(_BEGINNING, upto))
    kept = [commit for commit in log if commit.lsn + _LENGTH <= back]
    other = [*kept, *data.draw(logs(back, 800))]
    differs = [one for one in log if one.changes and one not in kept] or [
        one for one in other if one.changes and one not in kept and one.lsn < upto
    ]
    confirmed = data.draw(st.integers(0, back))
    inside = [commit.lsn for commit in log if commit.lsn < confirmed < commit.lsn + _LENGTH]
    confirmed = inside[0] if inside else confirmed  # a slot stands after a whole record, or before it
    recognition.connected(confirmed)
    parts = sent(other, confirmed, recognition.beginning(upto), data)
    if not differs:
        return
    with pytest.raises(HeadraceError) as caught:
        take(recognition, parts, max(upto, back + 1000))
    assert caught.value.kind is Kind.OTHER_LOG


def test_what_a_promoted_standby_has_not_heard_of_is_no_other_log() -> None:
    """The old primary's log was longer, and had nothing for us there."""
    recognition = Recognition()
    recognition.look(found([Commit(20, 700, 1)]))
    recognition.passed(100)
    recognition.connected(15, left=60)
    recognition.look(found([Commit(20, 700, 1), Commit(70, 800, 1)]))
    assert recognition.last == KnownCommit(70, 800, 70000)
