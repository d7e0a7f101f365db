"""What errors that real servers have sent mean, by their SQLSTATE and words."""

from __future__ import annotations

import pytest

from headrace.errors import POLICIES, Kind, Retry
from headrace.postgres.error_classes import ErrorClass, classify
from headrace.postgres.server_errors import sqlstate_error, statement_error

NAME = "00000001000000000000000A"
SEGMENT = f"requested WAL segment {NAME} has already been removed"
UNREADABLE = f"WAL segment {NAME}, LSN 0/A000000, offset 0"
STANDBY = 'specified in parameter "synchronized_standby_slots"'
OF_THE_LOG = [
    ("58P01", 'could not open file "pg_logical/snapshots/0-1.snap.57.tmp": No such file', ErrorClass.PASSES),
    ("XX000", 'could not rename file "pg_replslot/s/state.tmp": Success', ErrorClass.PASSES),
    ("XX000", 'could not rename file "pg_logical/snapshots/0-1.snap.57.tmp"', ErrorClass.PASSES),
    ("XX000", "could not read from reorderbuffer spill file: read only 0 bytes", ErrorClass.PASSES),
    ("XX000", 'could not stat file "base/5/1259": Stale file handle', ErrorClass.PASSES),
    ("XX000", "Internal error encountered during logical decoding", ErrorClass.PASSES),
    ("XX000", "could not find record while sending logically-decoded data", ErrorClass.PASSES),
    ("XX001", 'invalid page in block 7 of relation "base/5/1259"', ErrorClass.PASSES),
    ("XX001", "missing chunk number 0 for toast value 16405 in pg_toast_2619", ErrorClass.PASSES),
    ("58P01", "could not access status of transaction 735", ErrorClass.PASSES),
    ("XX000", f"could not read from {UNREADABLE}: Stale file handle", ErrorClass.PASSES),
    ("XX000", f"could not find record: unexpected pageaddr 0/1 in {UNREADABLE}", ErrorClass.PASSES),
    ("XX000", f"could not find record: invalid magic number 0000 in {UNREADABLE}", ErrorClass.PASSES),
    ("XX000", f'could not open file "pg_wal/{NAME}": Stale file handle', ErrorClass.PASSES),
    ("58P01", f'could not open file "pg_wal/{NAME}": No such file', ErrorClass.LOG_REMOVED),
    ("XX000", f"das angeforderte WAL-Segment {NAME} wurde schon entfernt", ErrorClass.LOG_REMOVED),
    ("58P01", SEGMENT, ErrorClass.LOG_REMOVED),
    ("XX000", SEGMENT, ErrorClass.LOG_REMOVED),
]
OF_ANYTHING = [
    ("XX000", "unrecognized SI message ID: 66", ErrorClass.PASSES),
    ("XX000", "pfree called with invalid pointer 0x55 (header 0x1)", ErrorClass.PASSES),
    ("XX000", "could not find block containing chunk 0x55", ErrorClass.PASSES),
    ("XX000", 'could not extend file "base/5/1": Disk quota exceeded', ErrorClass.PASSES),
    ("XX000", "could not read block 7 from page server at lsn 0/16B3748", ErrorClass.PASSES),
    ("XX000", "cache lookup failed for relation 16399", ErrorClass.PASSES),
    ("XX000", "could not open relation with OID 16399", ErrorClass.PASSES),
    ("XX000", "cache lookup failed for attribute 3 of relation 16399", ErrorClass.PASSES),
    ("XX000", "catalog is missing 1 attribute(s) for relation OID 16399", ErrorClass.PASSES),
    ("XX000", "lost connection to parallel worker", ErrorClass.PASSES),
    ("55000", "parallel worker failed to initialize", ErrorClass.PASSES),
    ("XX000", "[NEON_SMGR] [shard 0] could not send request", ErrorClass.PASSES),
    ("58P01", 'could not open shared memory segment "/PostgreSQL.7": No such file', ErrorClass.PASSES),
    ("72000", "snapshot too old", ErrorClass.PASSES),
    ("58030", 'could not write to file "pg_replslot/s/xid-1.spill"', ErrorClass.PASSES),
    ("42501", 'could not open file "pg_replslot/s/state.tmp": Read-only file system', ErrorClass.PASSES),
    ("55000", "replication slots cannot be used on RO (Read Only) node", ErrorClass.NOT_PRIMARY),
    ("XX000", "slots have to be used from the writer node instead", ErrorClass.NOT_PRIMARY),
    ("XX000", "create the slot from the writer instance", ErrorClass.NOT_PRIMARY),
    ("55000", "This replication slot is being synchronized from the primary server", ErrorClass.NOT_PRIMARY),
    ("55000", "This replication slot is being synced from the primary server", ErrorClass.NOT_PRIMARY),
    ("55000", "cannot assign TransactionIds during recovery", ErrorClass.NOT_PRIMARY),
    ("0A000", "logical decoding cannot be used while in recovery", ErrorClass.NOT_PRIMARY),
    ("55000", "recovery is in progress", ErrorClass.NOT_PRIMARY),
    ("25006", "cannot execute pg_create_logical_replication_slot() during recovery", ErrorClass.NOT_PRIMARY),
    ("25006", "cannot execute INSERT in a read-only transaction", ErrorClass.READ_ONLY),
    ("57014", "canceling statement due to conflict with recovery", ErrorClass.AWAY),
    ("57P01", "terminating connection due to administrator command", ErrorClass.AWAY),
    ("57P05", "terminating connection due to idle-session timeout", ErrorClass.AWAY),
    ("40001", "terminating connection due to conflict with recovery", ErrorClass.AWAY),
    ("57000", "operator intervention", ErrorClass.AWAY),
    ("40003", "statement completion unknown", ErrorClass.AWAY),
    ("53000", 'could not open file "base/5/1": Too many open files in system', ErrorClass.AWAY),
    ("53200", "out of memory", ErrorClass.AWAY),
    ("55P03", "canceling statement due to lock timeout", ErrorClass.AWAY),
    ("55000", f'replication slot "b" {STANDBY} does not have active_pid', ErrorClass.AWAY),
    ("55000", f'physical replication slot "b" {STANDBY} has been invalidated', ErrorClass.AWAY),
    ("22023", f'replication slot "b" {STANDBY} does not exist', ErrorClass.AWAY),
    ("", "server closed the connection unexpectedly", ErrorClass.AWAY),
    ("0A000", "pg_control_system() is not supported", ErrorClass.REFUSED),
    ("42501", "permission denied for table t", ErrorClass.REFUSED),
    ("58P01", 'could not open file "pg_wal/00000002.history": No such file', ErrorClass.REFUSED),
]
KINDS = {
    ErrorClass.AWAY: Kind.CONNECTION,
    ErrorClass.NOT_PRIMARY: Kind.CONNECTION,
    ErrorClass.PASSES: Kind.SERVER_FAULT,
    ErrorClass.LOG_REMOVED: Kind.SERVER_FAULT,
}
"""The kinds of errors that are tried again; all others are final."""


def reading_kind(state: str, text: str) -> Kind:
    return sqlstate_error(state, text, place="db:1/x", slot="s", streaming=True).kind


@pytest.mark.parametrize(("state", "text", "meaning"), [*OF_THE_LOG, *OF_ANYTHING])
def test_an_error_of_a_reader_has_its_class_and_is_tried_again_as_that_says(
    state: str, text: str, meaning: ErrorClass
) -> None:
    assert classify(state, text, log=True) is meaning
    if meaning in KINDS and state:
        assert reading_kind(state, text) is KINDS[meaning]


@pytest.mark.parametrize(("state", "text", "meaning"), OF_ANYTHING)
def test_an_error_of_another_statement_has_the_same_class(state: str, text: str, meaning: ErrorClass) -> None:
    assert classify(state, text) is meaning
    if meaning in KINDS and state:
        error = statement_error(state, text, "postgresql://u@h/d")
        assert error.retry is Retry.BACK_OFF


@pytest.mark.parametrize(("state", "text"), [(state, text) for state, text, _ in OF_THE_LOG])
def test_what_only_a_reader_waits_for_is_final_in_a_statement(state: str, text: str) -> None:
    """Functions of users raise the same states for what they find in a row."""
    if "Stale file handle" not in text:
        assert classify(state, text) is ErrorClass.REFUSED


def test_a_fault_that_passes_is_final_after_an_hour_or_a_hundred_tries_and_a_server_that_is_away_never() -> (
    None
):
    fault, away = POLICIES[Kind.SERVER_FAULT], POLICIES[Kind.CONNECTION]
    assert (fault.most_tries, fault.most_seconds) == (100, 3600)
    assert away.most_tries == away.most_seconds == float("inf")
