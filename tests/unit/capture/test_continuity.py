"""Which differences between the log that was read and the one that is there are refused, and how?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, check_continuity, check_same_timeline
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import KnownCommit

HERE = LogOrigin("7", 3, 5)
NOW = LogPositions(HERE, confirmed=150, restart=100, written=300)
REACHED = 200


def test_what_goes_on_where_it_was_is_followed() -> None:
    check_continuity(NOW, "s", REACHED, None)
    check_continuity(NOW, "s", REACHED, HERE)
    check_continuity(replace(NOW, confirmed=REACHED, written=REACHED), "s", REACHED, HERE, known=REACHED)
    check_continuity(replace(NOW, written=None), "s", REACHED, HERE)
    check_same_timeline(HERE, HERE)


def test_a_timeline_that_left_the_old_one_behind_what_was_read_is_followed() -> None:
    """Also over several promotions."""
    promoted = replace(NOW, origin=LogOrigin("7", 5, 5), switches={3: REACHED, 4: 250})
    check_continuity(promoted, "s", REACHED, HERE)
    with pytest.raises(HeadraceError, match="documents may hold"):
        check_same_timeline(promoted.origin, HERE)


@pytest.mark.parametrize(
    ("now", "kind", "words"),
    [
        (replace(NOW, origin=LogOrigin("8", 3, 5)), Kind.CONTINUITY, "another database system"),
        (replace(NOW, origin=LogOrigin("7", 3, 6)), Kind.CONTINUITY, "dropped and recreated"),
        (replace(NOW, written=199), Kind.OTHER_LOG, "restored to an earlier time"),
        (replace(NOW, confirmed=201), Kind.CONTINUITY, "another program has moved it"),
        (replace(NOW, confirmed=250, restart=201), Kind.CONTINUITY, "it was recreated"),
        (replace(NOW, confirmed=None, restart=None), Kind.SLOT_UNKNOWN, "it was dropped"),
        (
            replace(NOW, origin=LogOrigin("7", 4, 5), switches={3: 199}),
            Kind.CONTINUITY,
            "left timeline 3 at 0/C7",
        ),
        (
            replace(NOW, origin=LogOrigin("7", 4, 5), switches={1: 150}),
            Kind.CONTINUITY,
            "timeline 3 elsewhere",
        ),
        (replace(NOW, origin=LogOrigin("7", 2, 5)), Kind.CONTINUITY, "timeline 3 elsewhere"),
        (
            replace(NOW, origin=LogOrigin("7", 4, 5), switches={3: 200}, confirmed=None),
            Kind.SLOT_UNKNOWN,
            "a standby was promoted",
        ),
    ],
)
def test_each_difference_has_its_words_and_waiting_is_no_remedy(
    now: LogPositions, kind: Kind, words: str
) -> None:
    """Drasi's hole 2: the server forwards to the slot's confirmed position, a silent gap."""
    with pytest.raises(HeadraceError, match=words) as refused:
        check_continuity(now, "s", REACHED, HERE)
    assert (refused.value.kind, refused.value.retry) == (kind, Retry.NEVER)
    assert "backfill again" in refused.value.remedy


def test_a_standby_that_is_not_promoted_is_waited_for() -> None:
    """What it lacks is no gap; a slot that it has of its own may be read there in the primary's place."""
    primary, standby = replace(HERE, standby=False), replace(HERE, standby=True)
    there = replace(NOW, origin=standby, written=None)
    for now in (replace(there, confirmed=None, restart=None), replace(there, copied=True)):
        with pytest.raises(HeadraceError, match="is a standby now") as waited:
            check_continuity(now, "s", REACHED, primary)
        assert waited.value.retry is Retry.BACK_OFF
    check_continuity(there, "s", REACHED, primary)
    check_continuity(there, "s", REACHED, standby)
    for before in (standby, HERE):
        with pytest.raises(HeadraceError, match="was dropped"):
            check_continuity(replace(there, confirmed=None), "s", REACHED, before)
    with pytest.raises(HeadraceError, match="another database system"):
        check_continuity(replace(there, copied=True), "s", REACHED, replace(primary, system="8"))
    assert LogOrigin.from_json(primary.to_json()).standby is False  # type: ignore[union-attr]


def test_the_log_must_reach_as_far_as_it_is_known_to_have_been() -> None:
    """A logged batch may end after what this process has read; the slot is compared with the latter."""
    with pytest.raises(HeadraceError, match="restored"):
        check_continuity(NOW, "s", REACHED, HERE, known=301)
    promoted = replace(NOW, origin=LogOrigin("7", 4, 5), switches={3: 220})
    with pytest.raises(HeadraceError, match="left timeline 3"):
        check_continuity(promoted, "s", REACHED, HERE, known=221)


def test_a_checkpoint_keeps_whose_log_it_is_of() -> None:
    place = Offset(200, last=KnownCommit(190, 7, 5))
    stored = place.to_json() | replace(HERE, began=40).to_json()
    origin, offset = LogOrigin.from_json(stored), Offset.from_json(stored)
    assert origin == HERE
    assert origin is not None
    assert origin.began == 40
    assert (offset, offset.last) == (place, place.last)
    assert not stored.keys() & {"began", "tables"}, "they mean something else in an offset of Spark"
    assert LogOrigin.from_json(Offset(200).to_json()) is None
