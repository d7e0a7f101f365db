"""What becomes of a slot that idles, falls behind, or prepares transactions?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.capture import Offset
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect
from headrace.postgres.slot import read_slot, slot_problem
from integration.capture.following import EVERYTHING, Source, eventually, next_batch, table
from integration.facts.told import Wire, told
from support.slots import KEEPS_LITTLE

pytestmark = pytest.mark.long  # what PostgreSQL does, whatever Headrace is

T = "CREATE TABLE t (id int PRIMARY KEY)"


def test_an_unpublished_write_is_only_a_keepalive_whose_answer_confirms(source: Source) -> None:
    """The server does not ask; so we answer on our own (`idle_seconds` of a stream)."""
    source.sql(T, "CREATE TABLE hidden (id int)", "CREATE PUBLICATION headrace FOR TABLE t")
    start = source.create_slot()
    with Wire(source) as wire:
        source.sql("INSERT INTO hidden VALUES (1)")
        written = source.number("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        assert eventually(lambda: wire.read(0.2) == [] and wire.keepalives)
        eventually(lambda: wire.read(0.2) == [] and wire.keepalives[-1].wal_end >= written)
        assert not any(keepalive.reply_requested for keepalive in wire.keepalives)
        assert source.confirmed() == start.lsn
        wire.confirm(wire.keepalives[-1].wal_end)
        eventually(lambda: source.confirmed() >= written)


def restart_lsn(source: Source) -> int:
    return source.number(
        "SELECT restart_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", source.slot
    )


def test_the_log_is_given_back_only_after_a_checkpoint(source: Source, version: int) -> None:
    """Or, since 16, after pg_log_standby_snapshot: both write the running transactions to the log.

    So does the server's background writer every 15 seconds, which nobody can forbid: it may come between.
    """
    source.sql(T)
    start = source.publish()
    stream = source.stream(start, idle_seconds=0.1)
    place: list[Offset] = [start]

    def kept() -> bool:
        source.sql(f"INSERT INTO t VALUES ({len(place)})")
        place.append(next_batch(stream, place[-1]))
        stream.confirm(place[-1])
        eventually(lambda: source.confirmed() >= place[-1].lsn)
        return restart_lsn(source) < place[-1].lsn

    assert kept() or kept()
    before = restart_lsn(source)

    def moved() -> bool:
        source.sql("CHECKPOINT" if version < 16 else "SELECT pg_log_standby_snapshot()")
        place.append(stream.next_offset(place[-1], EVERYTHING, 0.3))
        stream.confirm(place[-1])
        return restart_lsn(source) > before

    assert eventually(moved)


def test_a_lost_slot_ends_its_stream_and_only_a_new_snapshot_helps(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    """The refusal of a stream that begins anew: `tests/integration/postgres/test_slot.py`."""
    server = make_server(**KEEPS_LITTLE)
    source = Source(server.create_database("lost"))
    source.sql(T)
    source.publish()
    with Wire(source) as wire:
        for number in range(4):
            source.sql(f"INSERT INTO t VALUES ({number})", "SELECT pg_switch_wal()")
        source.sql("CHECKPOINT")
        with pytest.raises(HeadraceError, match="terminating connection") as caught:
            wire.read(20)
    assert caught.value.kind is Kind.CONNECTION, "the next attempt tells more"
    with connect(source.url) as connection:
        facts = read_slot(connection, source.slot)
    assert facts is not None
    assert facts.lost
    problem = slot_problem(facts, "lost")
    assert problem is not None
    assert problem.kind is Kind.SLOT_LOST
    with pytest.raises(HeadraceError) as caught:
        Wire(source)
    assert caught.value.kind is Kind.SLOT_LOST


@pytest.mark.parametrize("version", [18], indirect=True)
def test_the_idle_timeout_takes_every_idle_slot_at_a_checkpoint(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    server = make_server(idle_replication_slot_timeout="1s")
    source = Source(server.create_database("idle"))
    source.sql(T)
    source.publish()
    source.sql("INSERT INTO t VALUES (1)", "SELECT pg_switch_wal()", "SELECT pg_sleep(1.5)")
    with connect(source.url) as connection:
        facts = read_slot(connection, source.slot)
        assert facts is not None
        assert not facts.lost, "time alone does nothing"
        source.sql("CHECKPOINT")
        facts = read_slot(connection, source.slot)
    assert facts is not None
    assert facts.lost
    with pytest.raises(HeadraceError) as caught:
        Wire(source)
    assert caught.value.kind is Kind.SLOT_LOST


def letters(source: Source) -> str:
    """The kinds of all messages of a two-phase slot."""
    found = source.query(
        "SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '3', "
        "'publication_names', 'headrace')",
        source.slot,
    )
    return "".join(bytes(data)[:1].decode() for (data,) in found)


def test_a_two_phase_slot_delivers_at_prepare_and_only_once(source: Source) -> None:
    """A reader that stops in between never sees the rows again: such a slot is refused."""
    source.sql(T, "CREATE PUBLICATION headrace FOR ALL TABLES")
    source.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)", source.slot)
    source.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'one'")
    assert letters(source) == "bRIP"
    source.sql("COMMIT PREPARED 'one'")
    assert letters(source) == "K"
    with connect(source.url) as connection:
        facts = read_slot(connection, source.slot)
        assert facts is not None
        problem = slot_problem(facts, connection.info.dbname)
    assert problem is not None
    assert "two_phase" in str(problem)


def test_a_plain_slot_delivers_a_prepared_transaction_at_its_commit(source: Source) -> None:
    source.sql(T)
    start = source.publish()
    source.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'two'")
    assert told(source) == []
    source.sql("COMMIT PREPARED 'two'")
    assert told(source) == [("I", "t", None, ("1",))]
    stream = source.stream(start)
    assert table(stream, start, next_batch(stream, start)).num_rows == 1


def test_a_prepared_transaction_that_is_rolled_back_is_not_told(source: Source) -> None:
    source.sql(T)
    source.publish()
    source.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'three'", "ROLLBACK PREPARED 'three'")
    assert told(source) == []
