"""What a server must be so that a reader goes on with it as with what pg_upgrade made of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, read_positions
from headrace.capture.upgrade import check_upgraded
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import create_slot
from support.slots import KEEPS_LITTLE, lose_slots

SLOT = "s_upgraded"


def adopt(
    url: str,
    before: Callable[[LogOrigin], LogOrigin],
    reached: Callable[[Lsn], Offset] = Offset,
    differences: Sequence[str] = (),
) -> tuple[Lsn, LogPositions]:
    """Return the confirmed place for a reader of a server before, and the positions of this one."""
    with ReplicationConnection(url) as replication, connect(url) as connection:
        now = read_positions(replication, SLOT)
        confirmed = check_upgraded(
            connection,
            now,
            SLOT,
            reached(now.confirmed or 0),
            before(now.origin),
            publication="p_upgraded",
            differences=lambda made: differences,
            start_over="start over.",
        )
    return confirmed, now


def of_another_system(now: LogOrigin) -> LogOrigin:
    return replace(now, system="7")


def test_a_reader_goes_on_where_the_new_slot_stands(url: str) -> None:
    create_slot(url, SLOT).close()
    confirmed, now = adopt(url, of_another_system, lambda here: Offset(here - 100))
    assert confirmed == now.confirmed


def test_the_server_that_was_read_is_not_adopted(url: str) -> None:
    create_slot(url, SLOT).close()
    with pytest.raises(HeadraceError, match="nothing to adopt") as refused:
        adopt(url, lambda now: now)
    assert refused.value.kind is Kind.USAGE


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"before": lambda now: replace(now, system="7", database=1)}, "the database has another oid"),
        ({"reached": lambda here: Offset(here + 1)}, "before the position"),
        ({"reached": lambda here: Offset(here, here + 8)}, "a transaction was read in part"),
        ({"differences": ["the column a.b is gone"]}, "the column a.b is gone"),
    ],
)
def test_another_server_is_refused_with_the_reason(url: str, arguments: dict[str, Any], why: str) -> None:
    create_slot(url, SLOT).close()
    with pytest.raises(HeadraceError, match=why) as refused:
        adopt(url, **{"before": of_another_system, **arguments})
    assert refused.value.kind is Kind.CONTINUITY
    assert refused.value.remedy.endswith("start over.")


def test_a_server_without_the_slot_is_refused(url: str) -> None:
    with pytest.raises(HeadraceError, match="its slot is missing or lost") as refused:
        adopt(url, of_another_system)
    assert refused.value.kind is Kind.CONTINUITY


def test_a_server_whose_slot_is_lost_is_refused(make_server: Callable[..., EmbeddedPostgres]) -> None:
    server = make_server(**KEEPS_LITTLE)
    create_slot(server.url, SLOT).close()
    lose_slots(server.url)
    with pytest.raises(HeadraceError, match="its slot is missing or lost") as refused:
        adopt(server.url, of_another_system, lambda _: Offset(0))
    assert refused.value.kind is Kind.CONTINUITY


def test_a_slot_that_somebody_reads_is_refused(url: str) -> None:
    create_slot(url, SLOT).close()
    with ExitStack() as held:
        connection = held.enter_context(connect(url))
        execute(connection, "CREATE PUBLICATION p_upgraded")
        held.enter_context(ReplicationConnection(url)).start(SLOT, 0, ["p_upgraded"])
        with pytest.raises(HeadraceError) as refused:
            adopt(url, of_another_system)
    assert refused.value.kind is Kind.SLOT_IN_USE
