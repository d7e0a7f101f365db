from dataclasses import replace

import pytest

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry
from headrace.pipeline.continuity import GapError, check_continuity, check_origin
from headrace.postgres.server import ServerFacts
from headrace.postgres.slot import SlotFacts
from headrace.state import PipelineState

STATE = PipelineState("7", 1, 5, "s", "p", "following", consistent_point=100, applied=200)
SERVER = ServerFacts(
    version=160000,
    version_text="16.0",
    wal_level="logical",
    in_recovery=False,
    system_identifier=7,
    timeline=1,
    database_oid=5,
    database="shop",
    current_lsn=300,
    max_slots=10,
    used_slots=1,
    max_slot_wal_keep_size=None,
)
SLOT = SlotFacts(
    name="s",
    plugin="pgoutput",
    kind="logical",
    database="shop",
    two_phase=False,
    temporary=False,
    active_pid=None,
    confirmed_flush=150,
    restart=100,
    wal_status="reserved",
    safe_wal_size=None,
    current=300,
)


def test_a_slot_behind_the_documents_is_followed_and_repeats_a_little() -> None:
    check_continuity(STATE, SERVER, SLOT)
    check_continuity(STATE, SERVER, replace(SLOT, confirmed_flush=STATE.applied))
    check_continuity(STATE, replace(SERVER, current_lsn=STATE.applied), SLOT)
    check_origin(STATE, SERVER, SLOT)


def test_a_standby_in_the_primarys_place_is_waited_for_and_one_that_was_followed_is_judged() -> None:
    standby = replace(SERVER, in_recovery=True, current_lsn=150)
    for slot in (None, replace(SLOT, synced=True)):
        with pytest.raises(HeadraceError, match="is a standby now") as waited:
            check_origin(replace(STATE, standby=False), standby, slot)
        assert waited.value.retry is Retry.BACK_OFF
    # Of two standbys one was promoted, and the other is not led to it yet.
    with pytest.raises(HeadraceError, match="is a standby now"):
        check_origin(replace(STATE, standby=False, timeline=2), standby, None)
    with pytest.raises(GapError, match="is gone"):
        check_origin(replace(STATE, standby=True), standby, None)
    assert PipelineState.from_json(replace(STATE, standby=False).to_json()).standby is False


def test_the_primary_of_before_a_promotion_is_never_backfilled_from() -> None:
    """It is no gap: whoever reseeds would replace what is served by what is older."""
    for slot in (None, SLOT):
        with pytest.raises(HeadraceError, match="the primary of before a promotion is back") as refused:
            check_origin(replace(STATE, timeline=2), SERVER, slot)
        assert refused.value.kind is Kind.CONTINUITY
        assert not isinstance(refused.value, GapError)


@pytest.mark.parametrize(
    ("server", "slot", "kind", "words"),
    [
        (replace(SERVER, system_identifier=8), SLOT, Kind.CONTINUITY, "another system"),
        (replace(SERVER, database_oid=6), SLOT, Kind.CONTINUITY, "another database"),
        (SERVER, None, Kind.SLOT_LOST, "gone"),
        (SERVER, replace(SLOT, wal_status="lost", restart=None), Kind.SLOT_LOST, "is lost"),
        (replace(SERVER, current_lsn=199), SLOT, Kind.CONTINUITY, "restored"),
        (SERVER, replace(SLOT, confirmed_flush=201), Kind.CONTINUITY, "recreated, or read by someone else"),
        (replace(SERVER, timeline=2), SLOT, Kind.CONTINUITY, "promoted"),
        (replace(SERVER, timeline=2), None, Kind.CONTINUITY, "promoted.* no replication slot 's'"),
        (replace(SERVER, timeline=2, current_lsn=199), SLOT, Kind.CONTINUITY, "promoted"),
        (replace(SERVER, timeline=2), replace(SLOT, confirmed_flush=201), Kind.CONTINUITY, "promoted"),
    ],
)
def test_what_does_not_belong_together_is_refused_with_the_way_out(
    server: ServerFacts, slot: SlotFacts | None, kind: Kind, words: str
) -> None:
    """Drasi's hole 2: the server forwards to the slot's confirmed position, a silent gap."""
    with pytest.raises(HeadraceError, match=words) as refused:
        check_origin(STATE, server, slot)
    assert refused.value.kind is kind
    same_system = server.system_identifier == SERVER.system_identifier
    if same_system and server.database_oid == SERVER.database_oid:
        assert isinstance(refused.value, GapError), "what a run may mend by itself"
        assert BACKFILL_AGAIN in refused.value.remedy, "which leaves readers what they have"
    else:
        assert not isinstance(refused.value, GapError)
        assert "--slot" in refused.value.remedy, "it may be another deployment's, and no reason to delete it"
        assert "teardown --moved" in refused.value.remedy


def test_a_slot_that_the_cluster_does_not_know_is_not_read() -> None:
    with pytest.raises(HeadraceError, match="--slot") as refused:
        check_origin(None, SERVER, SLOT)
    assert refused.value.kind is Kind.SLOT_UNKNOWN


def test_a_first_start_and_one_that_died_in_its_first_backfill_may_begin() -> None:
    check_origin(None, SERVER, None)
    check_origin(replace(STATE, phase="creating"), SERVER, None)
    check_origin(replace(STATE, phase="creating"), SERVER, SLOT)
